//! Damaged GGUF headers, registries and manifests of Ollama through everything that reads them: no panic, no memory beyond
//! what a file's size accounts for, an end in time, and one line that says where the mistake is.
//!
//! A round is made of its seed alone. `scripts/fuzz` goes on for as long as one likes.

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use qchat::error::Kind;
use qchat::models::{Facts, Header, Needs, Registry, Resolved, Resolver, Target, Vocabulary};
use qchat::paths::Paths;
use serde_json::json;

use super::downloads::sha256;
use crate::common::blank::{Blank, F32, Q4_K, Q8_0};
use crate::common::{Sandbox, stderr, stdout};

const ROUNDS: u64 = 4000;
/// Files are of some 10 kB: what reads them may take that much in all, and no more. A count that is believed takes more.
const MOST_MEMORY: u64 = 4 << 20;
/// Of one round, on a machine that does other things too.
const MOST_TIME: Duration = Duration::from_secs(5);

#[allow(clippy::print_stdout, reason = "scripts/fuzz shows it")]
#[test]
fn damaged_files_are_refused_without_harm() {
    let sandbox = Sandbox::new();
    // A process of its own: the memory that it takes is its own, and so is its environment.
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "models_here_fuzz::worker", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env_clear().envs(sandbox.environment()).env("OLLAMA_MODELS", sandbox.path("ollama"));
    // One heap: the address space that each thread's own would reserve hides what is taken.
    command.env("MALLOC_ARENA_MAX", "1");
    for name in ["QCHAT_FUZZ_SECONDS", "QCHAT_FUZZ_SEED"] {
        command.envs(std::env::var(name).map(|value| (name, value)));
    }
    let output = command.env("QCHAT_FUZZ_HOME", sandbox.home.path()).output().unwrap();
    assert!(output.status.success(), "{:?}\n{}\n{}", output.status, stdout(&output), stderr(&output));
    let said = stdout(&output);
    let line = said.lines().find(|line| line.contains("rounds of all kinds"));
    println!("{}", line.expect("a worker that worked"));
}

#[allow(clippy::print_stdout, reason = "the test above reads it")]
#[test]
#[ignore = "the process that the test above starts"]
fn worker() {
    let Ok(home) = std::env::var("QCHAT_FUZZ_HOME") else { return };
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let (seconds, first) = (number("QCHAT_FUZZ_SECONDS"), number("QCHAT_FUZZ_SEED").unwrap_or(1));
    let bench = Bench::new(Path::new(&home));
    // What every process takes once: the first rounds.
    (0..64).for_each(|seed| bench.round(seed));
    let (began, memory) = (Instant::now(), peak_memory());
    let mut rounds = 0;
    while seconds.map_or(rounds < ROUNDS, |seconds| began.elapsed() < Duration::from_secs(seconds)) {
        let (seed, at) = (first.wrapping_add(rounds), Instant::now());
        let passed = catch_unwind(AssertUnwindSafe(|| bench.round(seed))).is_ok();
        assert!(passed, "the round of seed {seed} failed");
        assert!(at.elapsed() < MOST_TIME, "the round of seed {seed} took {:?}", at.elapsed());
        let taken = peak_memory().saturating_sub(memory);
        assert!(taken < MOST_MEMORY, "after the round of seed {seed} {taken} bytes had been taken");
        rounds += 1;
    }
    println!("{rounds} rounds of all kinds from seed {first}, {} bytes taken", peak_memory() - memory);
}

/// The address space at its largest: what was asked for counts, touched or not. 0 where Linux does not tell.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

const NAMES: [&str; 3] = ["m.gguf", "m-00001-of-00002.gguf", "m-00001-of-99999.gguf"];

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Damages bytes in one to four places.
    fn damage(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            let rest = bytes.len() - at;
            match self.below(8) {
                0 => bytes.truncate(at),
                1 if rest > 0 => bytes[at] ^= 1 << self.below(8),
                2 if rest > 0 => bytes[at] = self.next() as u8,
                3 | 4 => {
                    let whole = bytes.len() as u64;
                    let numbers =
                        [0, 1, 7, 8, 9, 255, 1 << 16, (1 << 22) - 1, 1 << 31, 1 << 60, u64::MAX, whole, whole / 8];
                    let number = self.pick(&numbers).to_le_bytes();
                    let width = if self.below(2) == 0 { 4 } else { 8 }.min(rest);
                    bytes[at..at + width].copy_from_slice(&number[..width]);
                }
                5 => drop(bytes.drain(at..at + self.below(rest.min(64) + 1))),
                6 => {
                    let piece = bytes[at..at + self.below(rest.min(64) + 1)].to_vec();
                    bytes.splice(at..at, piece);
                }
                _ => {
                    let from = self.below(other.len());
                    let piece = other[from..(from + self.below(256)).min(other.len())].to_vec();
                    let width = piece.len().min(rest);
                    bytes.splice(at..at + width, piece);
                }
            }
        }
    }
}

/// What the rounds damage, and where.
struct Bench {
    home: PathBuf,
    resolver: Resolver,
    headers: Vec<Vec<u8>>,
}

const REGISTRY: &str = "default_model = 'a'\n\n[[model]]\nname = 'a'\nalso = ['b', \"c d\"]\nfamily = 'x'\ncontext = 4096\n\
    draft = 'e'\ntemplate = 'chatml'\nsystem = '''Be brief,\nif you can.'''\nsampling = { temperature = 0.5, top_p = 0.9 }\n\
    [[model.source]]\nhf = 'owner/repo'\nrevision = 'main'\nquant = 'Q8_0'\n\
    files = [{ name = 'x/y.gguf', bytes = 7, sha256 = 'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff' }]\n\
    [[model]]\nname = 'e'\n[model.sampling]\nmin_p = 0.1\n[[model.source]]\npath = '~/x.gguf'\n\
    [[model.source]]\npip = { package = 'p{n}', version = '1', member = '*', parts = 3 }\n";

impl Bench {
    fn new(home: &Path) -> Self {
        let words: Vec<String> = (0..400).map(|id| format!("token {id}")).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let common = |name: &str| {
            let own = |key: &str| format!("{name}.{key}");
            Blank::new(name)
                .number(&own("block_count"), 4)
                .number(&own("context_length"), 2048)
                .number(&own("embedding_length"), 64)
                .number(&own("attention.head_count"), 4)
                .texts("tokenizer.ggml.tokens", &words)
                .numbers("tokenizer.ggml.token_type", &[1; 400])
                .tensor("token_embd.weight", &[32, 4], Q8_0, 136)
        };
        let experts = common("llama").number("llama.expert_count", 8).number("llama.expert_used_count", 2);
        let headers = [
            common("llama").text("tokenizer.chat_template", "<|im_start|>").tensor("output.weight", &[256], Q4_K, 144),
            experts.tensor("blk.0.ffn_up_exps.weight", &[32, 2, 8], F32, 2048),
            common("lfm2").numbers("lfm2.attention.head_count_kv", &[0, 4, 0, 8]),
            common("mamba").number("mamba.ssm.inner_size", 128).number("mamba.ssm.state_size", 8),
            common("llama").number("split.count", 2).number("split.no", 0).numbers("long", &[7; 1200]),
        ];
        let whole = |blank: &Blank| {
            let (mut header, tensors) = blank.header();
            header.resize(header.len() + tensors as usize, 0);
            header
        };
        let resolver = Resolver::new(Paths::under(&home.join("qchat"))).unwrap();
        Self { home: home.to_owned(), resolver, headers: headers.iter().map(whole).collect() }
    }

    fn round(&self, seed: u64) {
        let mut random = Random(seed);
        match seed % 16 {
            0 => self.registry(&mut random),
            1 | 2 => self.ollama(&mut random),
            3 => self.address(&mut random),
            _ => self.header(&mut random),
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.home.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn header(&self, random: &mut Random) {
        let mut bytes = random.pick(&self.headers).clone();
        if random.below(16) == 0 {
            // Nothing but noise behind the start of a file.
            let noise = (0..random.below(2000)).map(|_| if random.below(3) == 0 { random.next() as u8 } else { 0 });
            bytes = b"GGUF\x03\0\0\0".iter().copied().chain(noise.collect::<Vec<_>>()).collect();
        }
        random.damage(&mut bytes, random.0.to_le_bytes().repeat(40).as_slice());
        let path = self.write(NAMES[random.below(NAMES.len())], &bytes);
        let len = bytes.len() as u64;
        let read = Header::read(&path);
        assert_eq!(read.is_ok(), Header::parse(Cursor::new(&bytes), len).is_ok(), "from a file and from memory");
        if let Err(error) = self.resolver.here(&Target::Path(path.clone())) {
            let line = error.to_string();
            assert!(error.kind() == Kind::Model && line.lines().count() == 1 && line.len() < 1000, "{line}");
        }
        let header = match read {
            Ok(header) => header,
            Err(error) => return assert!(!error.to_string().is_empty()),
        };
        // A tensor lies in the file, so that all of them have no more bytes than tensors times the file.
        assert!(header.tensors <= len / 24 && header.census.all.tensors == header.tensors);
        assert!(header.census.all.bytes <= len.saturating_mul(header.tensors), "{:?}", header.census);
        let vocabulary = Vocabulary::read(&path, &header);
        if let Ok(vocabulary) = &vocabulary {
            assert!(vocabulary.len() as u64 <= len / 8);
            assert_eq!(vocabulary.mismatch(vocabulary), None);
        }
        let model =
            Resolved { name: "m".into(), entry: None, file: path, quant: None, header: Some(header), bytes: len };
        if let Ok(Some(facts)) = Facts::of(&model) {
            assert!(facts.read_per_token <= facts.census.all.bytes);
        }
        let needs = Needs::of(&model).unwrap();
        assert!(needs.at(4096) >= len && needs.at(1 << 40) >= needs.at(4096));
    }

    fn registry(&self, random: &mut Random) {
        let mut bytes = REGISTRY.as_bytes().to_vec();
        random.damage(
            &mut bytes,
            b"[[model]]\nname = 'a'\n''' = [{ \"\\u0000 ] }\nsampling = { top_p = nan }\nbytes = -1\n",
        );
        let path = self.write("models.toml", &bytes);
        match Registry::load(&path) {
            Ok(registry) => {
                for entry in registry.entries() {
                    assert_eq!(registry.find(&entry.name).unwrap().name, entry.name);
                    assert_eq!(entry.sampling.problem(), None);
                }
            }
            Err(error) => {
                let line = error.to_string();
                assert!(error.kind() == Kind::Usage && line.lines().count() == 1, "{line}");
                let Ok(text) = String::from_utf8(bytes) else { return };
                let number =
                    line.strip_prefix(&format!("{}, line ", path.display())).and_then(|rest| rest.split(' ').next());
                let number = number.and_then(|number| number.parse::<usize>().ok()).unwrap_or_else(|| panic!("{line}"));
                assert!((1..=text.lines().count() + 1).contains(&number), "{line}");
            }
        }
    }

    /// A manifest with its layers, one of which is damaged.
    fn ollama(&self, random: &mut Random) {
        let layers = [
            ("model", self.headers[0].clone()),
            ("params", br#"{"temperature":0.5,"top_k":7,"stop":["x"]}"#.to_vec()),
            ("system", b"Be brief.".to_vec()),
            ("template", b"<|im_start|>".to_vec()),
        ];
        let _ = std::fs::remove_dir_all(self.home.join("ollama"));
        let damaged = random.below(layers.len() + 1);
        let mut described = Vec::new();
        for (at, (kind, mut bytes)) in layers.into_iter().enumerate() {
            if at == damaged {
                random.damage(&mut bytes, b"\xff\xfe{\"temperature\":1e999,\"top_k\":-1,\"min_p\":nan}<start_of_turn>");
            }
            let digest = sha256(&bytes);
            self.write(&format!("ollama/blobs/sha256-{digest}"), &bytes);
            let media_type = format!("application/vnd.ollama.image.{kind}");
            described.push(json!({ "mediaType": media_type, "digest": format!("sha256:{digest}") }));
        }
        let mut manifest = json!({ "schemaVersion": 2, "layers": described }).to_string().into_bytes();
        if damaged == 4 {
            random.damage(&mut manifest, b"sha256:../../../../m.gguf\",{\"mediaType\":null}]]]\"\\ud800");
        }
        self.write("ollama/manifests/registry.ollama.ai/library/x/latest", &manifest);
        self.resolver.elsewhere();
        self.leads_nowhere_else("ollama:x");
    }

    fn address(&self, random: &mut Random) {
        let pieces = [
            "owner", "repo", "/", ":", "..", "x", ".gguf", "Q8_0", "\\", " ", "\u{1b}[", "é", "~", "latest", "sha256-",
            "\0",
        ];
        let address: String = (0..random.below(9)).map(|_| *random.pick(&pieces)).collect();
        self.leads_nowhere_else(&format!("ollama:{address}"));
        self.leads_nowhere_else(&format!("hf:{address}"));
    }

    /// What a name of somebody else's model leads to is a blob of Ollama's, or a name below a repository.
    fn leads_nowhere_else(&self, name: &str) {
        let entry = match self.resolver.target(name) {
            Ok(Target::Entry(entry)) => entry,
            Ok(target) => panic!("{name}: {target:?}"),
            Err(error) => {
                let line = error.to_string();
                assert!(matches!(error.kind(), Kind::Usage | Kind::Model), "{line}");
                return assert!(line.len() < 1000, "{line}");
            }
        };
        assert_eq!(entry.sampling.problem(), None);
        for source in &entry.sources {
            if let Some(path) = &source.path {
                let digest =
                    path.strip_prefix(&format!("{}/sha256-", self.home.join("ollama/blobs").display())).unwrap();
                assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{path}");
            }
            let parts = source
                .files
                .iter()
                .flat_map(|file| file.name.split('/'))
                .chain(source.hf.iter().flat_map(|hf| hf.split('/')));
            parts.for_each(|part| assert!(!part.is_empty() && !part.starts_with('.'), "{name}"));
        }
    }
}
