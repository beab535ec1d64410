//! The instructions that this build of llama.cpp uses against those that the processor has.

use std::path::Path;

use serde::Serialize;

use super::cores::value;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Feature {
    /// llama.cpp's name.
    pub name: &'static str,
    #[serde(skip)]
    words: &'static str,
    /// Whether this build uses it.
    pub compiled: bool,
    /// Whether the processor has it, and the system lets programs use it.
    pub present: bool,
}

/// Those that llama.cpp has kernels for and that make answers faster: its name, ours, and Linux's.
type Known = (&'static str, &'static str, &'static str);

const X86: [Known; 8] = [
    ("AVX2", "AVX2", "avx2"),
    ("FMA", "FMA", "fma"),
    ("F16C", "F16C", "f16c"),
    ("AVX_VNNI", "AVX-VNNI", "avx_vnni"),
    ("AVX512", "AVX-512", "avx512f"),
    ("AVX512_VNNI", "AVX-512 VNNI", "avx512_vnni"),
    ("AVX512_BF16", "AVX-512 BF16", "avx512_bf16"),
    (AMX, "AMX", "amx_int8"),
];
const ARM: [Known; 4] = [
    ("NEON", "NEON", "asimd"),
    ("DOTPROD", "the dot product", "asimddp"),
    ("MATMUL_INT8", "the int8 matrix product", "i8mm"),
    ("SVE", "SVE", "sve"),
];

const AMX: &str = "AMX_INT8";

/// `line` is what `llama_print_system_info` returns.
pub fn compare(line: &str) -> Vec<Feature> {
    if cfg!(target_os = "linux") {
        let flags = flags(Path::new("/"));
        select(here(), line, |flag| flags.iter().any(|known| known == flag))
    } else {
        select(here(), line, detected)
    }
}

fn here() -> &'static [Known] {
    match std::env::consts::ARCH {
        "x86_64" => &X86,
        "aarch64" => &ARM,
        _ => &[],
    }
}

/// What there is to say of them, a sentence each: nothing where the build fits the processor.
pub fn remarks(features: &[Feature]) -> Vec<String> {
    let those = |which: fn(&Feature) -> bool| {
        let names: Vec<_> = features.iter().filter(|feature| which(feature)).map(|feature| feature.words).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let unused = those(|feature| feature.present && !feature.compiled && feature.name != AMX);
    let lacking = those(|feature| feature.compiled && !feature.present);
    let left_out = those(|feature| feature.present && !feature.compiled && feature.name == AMX);
    let unused = unused.map(|it| {
        format!("this build does not use {it}, which this CPU has: build from source with target-cpu=native")
    });
    let lacking =
        lacking.map(|it| format!("this build uses {it}, which this CPU lacks: illegal instructions may end it"));
    let left_out = left_out
        .map(|it| format!("{it} is left out on purpose: some virtual machines announce it and then fail on it"));
    [unused, lacking, left_out].into_iter().flatten().collect()
}

fn select(known: &[Known], line: &str, has: impl Fn(&str) -> bool) -> Vec<Feature> {
    let compiled = compiled(line);
    let compare =
        |&(name, words, flag): &Known| Feature { name, words, compiled: compiled.contains(&name), present: has(flag) };
    known.iter().map(compare).collect()
}

/// The names under `CPU` in `CUDA : ARCHS = 860 | CPU : SSE3 = 1 | AVX = 1 | `.
fn compiled(line: &str) -> Vec<&str> {
    let mut backend = "";
    let mut names = Vec::new();
    for part in line.split('|') {
        let feature = part.rsplit_once(" : ").map_or(part, |(name, feature)| {
            backend = name.trim();
            feature
        });
        if let Some((name, setting)) = feature.split_once('=')
            && backend == "CPU"
            && setting.trim() != "0"
        {
            names.push(name.trim());
        }
    }
    names
}

/// From the kernel and not by [`detected`]: that one takes for granted what this program was compiled for.
fn flags(root: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let words = value(&text, "flags").or_else(|| value(&text, "Features")).unwrap_or_default();
    words.split_whitespace().map(str::to_owned).collect()
}

/// By asking the processor, or the system where it may not be asked. AMX cannot be asked for yet.
fn detected(flag: &str) -> bool {
    #[cfg(target_arch = "x86_64")]
    return match flag {
        "avx2" => is_x86_feature_detected!("avx2"),
        "fma" => is_x86_feature_detected!("fma"),
        "f16c" => is_x86_feature_detected!("f16c"),
        "avx_vnni" => is_x86_feature_detected!("avxvnni"),
        "avx512f" => is_x86_feature_detected!("avx512f"),
        "avx512_vnni" => is_x86_feature_detected!("avx512vnni"),
        "avx512_bf16" => is_x86_feature_detected!("avx512bf16"),
        _ => false,
    };
    #[cfg(target_arch = "aarch64")]
    return match flag {
        "asimd" => std::arch::is_aarch64_feature_detected!("neon"),
        "asimddp" => std::arch::is_aarch64_feature_detected!("dotprod"),
        "i8mm" => std::arch::is_aarch64_feature_detected!("i8mm"),
        "sve" => std::arch::is_aarch64_feature_detected!("sve"),
        _ => false,
    };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return flag.is_empty();
}

#[cfg(test)]
mod tests {
    use super::super::system;
    use super::*;

    /// Of this project's own build on a Sapphire Rapids.
    const NATIVE: &str = "CPU : SSE3 = 1 | SSSE3 = 1 | AVX = 1 | AVX_VNNI = 1 | AVX2 = 1 | F16C = 1 | FMA = 1 | \
                          BMI2 = 1 | AVX512 = 1 | AVX512_VBMI = 1 | AVX512_VNNI = 1 | AVX512_BF16 = 1 | \
                          LLAMAFILE = 1 | OPENMP = 1 | REPACK = 1 | ";
    const PORTABLE: &str = "CUDA : ARCHS = 860 | USE_GRAPHS = 1 | CPU : SSE3 = 1 | SSSE3 = 1 | AVX = 1 | AVX2 = 1 | \
                            F16C = 1 | FMA = 1 | BMI2 = 1 | LLAMAFILE = 1 | ";
    const SAPPHIRE: &str = "fma avx f16c avx2 avx512f avx_vnni avx512_bf16 avx512_vnni amx_bf16 amx_tile amx_int8";

    fn x86(line: &str, flags: &str) -> Vec<Feature> {
        select(&X86, line, |flag| flags.split(' ').any(|known| known == flag))
    }

    #[test]
    fn a_native_build_uses_all_but_amx_which_is_said_without_blame() {
        let features = x86(NATIVE, SAPPHIRE);
        assert!(features.iter().all(|feature| feature.present && feature.compiled == (feature.name != AMX)));
        let said = ["AMX is left out on purpose: some virtual machines announce it and then fail on it"];
        assert_eq!(remarks(&features), said);
    }

    #[test]
    fn a_portable_build_names_what_it_does_not_use() {
        let zen4 = x86(PORTABLE, "fma f16c avx2 avx512f avx512_vnni");
        let said = "this build does not use AVX-512, AVX-512 VNNI, which this CPU has: build from source with \
                    target-cpu=native";
        assert_eq!(remarks(&zen4), [said]);
        assert!(remarks(&x86(PORTABLE, "fma f16c avx2")).is_empty());
    }

    #[test]
    fn a_build_for_another_processor_is_named() {
        let said = "this build uses AVX-VNNI, AVX-512, AVX-512 VNNI, AVX-512 BF16, which this CPU lacks: illegal \
                    instructions may end it";
        assert_eq!(remarks(&x86(NATIVE, "fma f16c avx2")), [said]);
    }

    #[test]
    fn another_backend_and_a_zero_do_not_count() {
        assert_eq!(compiled("CUDA : FMA = 1 | CPU : AVX = 0 | AVX2 = 1 | MTL : F16C = 1 | "), ["AVX2"]);
        assert!(compiled("").is_empty() && compiled("| : = | CPU : ").is_empty());
    }

    #[test]
    fn an_arm_board_is_read_by_its_own_names() {
        let cpuinfo = "processor\t: 0\nFeatures\t: fp asimd evtstrm aes asimdhp asimddp\nCPU implementer\t: 0x41\n";
        let root = system(&[("proc/cpuinfo", cpuinfo)]);
        let flags = flags(root.path());
        let features = select(&ARM, "CPU : NEON = 1 | ARM_FMA = 1 | ", |flag| flags.iter().any(|known| known == flag));
        let found: Vec<_> = features.iter().map(|feature| (feature.name, feature.compiled, feature.present)).collect();
        let expected =
            [("NEON", true, true), ("DOTPROD", false, true), ("MATMUL_INT8", false, false), ("SVE", false, false)];
        assert_eq!(found, expected);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_kernel_and_the_processor_agree() {
        let flags = flags(Path::new("/"));
        for (name, _, flag) in here().iter().filter(|(name, ..)| *name != AMX) {
            assert_eq!(flags.iter().any(|known| known == flag), detected(flag), "{name}");
        }
    }
}
