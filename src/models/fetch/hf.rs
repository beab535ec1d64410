//! Files of a Hugging Face repository, into its own cache. `HF_ENDPOINT` names a mirror, `HF_TOKEN` (or the token file)
//! opens gated models, `HF_HUB_OFFLINE` forbids the network.

use std::path::PathBuf;

use serde::Deserialize;

use super::http::{Http, Part, check, header, origin, redirect};
use super::incoming::{Incoming, Turn, check_room, there_already};
use super::transfer::{Wanted, tag_file, transfer};
use super::{Fetcher, make_folder};
use crate::error::{Error, Result};
use crate::models::hub::{HubRepo, is_complete, is_gguf, pick};
use crate::models::registry::{FileSpec, Source};
use crate::paths::{Paths, non_empty};

/// A file as the hub describes it.
struct Described {
    wanted: FileSpec,
    /// Where the hub has it, redirects for renamed repositories followed.
    url: String,
    commit: Option<String>,
}

/// Fetches the files of `source`; where it names none, those of its quantisation. Answers the source with its files; those
/// that came, and were not here before, are `own`.
pub(super) fn fetch(
    repo: &str,
    source: &Source,
    paths: &Paths,
    fetcher: &mut Fetcher,
    own: &mut Vec<PathBuf>,
) -> Result<(Source, Vec<PathBuf>)> {
    let hub = Hub::new(repo, paths, fetcher)?;
    let source = hub.named(source, fetcher)?;
    let here = || hub.folder.find(Some(revision(&source)), &source.files);
    if let Some(files) = here() {
        return Ok((source, files));
    }
    // Parts that are here too: all must lie in the snapshot of one commit.
    let described = source.files.iter().map(|file| hub.describe(&source, file, fetcher));
    let described = described.collect::<Result<Vec<_>>>()?;
    // All parts together, before the first byte.
    let needed = described.iter().map(|file| {
        let bytes = file.wanted.bytes.unwrap_or(0);
        let there = file.wanted.sha256.as_ref().map_or(0, |digest| there_already(&hub.unfinished(digest)));
        if hub.has_blob(&file.wanted) { 0 } else { bytes.saturating_sub(there) }
    });
    // Sizes are what a server says.
    check_room(&paths.hugging_face(), needed.fold(0, u64::saturating_add))?;
    for file in &described {
        own.extend(hub.download(&source, file, fetcher)?);
    }
    let files = here().ok_or_else(|| Error::model(format!("what was fetched of {repo} is gone")).hint("try again"))?;
    Ok((source, files))
}

/// The files that `source` means and their sizes, without fetching them.
pub(super) fn sizes(repo: &str, source: &Source, paths: &Paths, fetcher: &mut Fetcher) -> Result<Source> {
    let hub = Hub::new(repo, paths, fetcher)?;
    let mut source = hub.named(source, fetcher)?;
    for at in 0..source.files.len() {
        if source.files[at].bytes.is_none() {
            source.files[at] = hub.describe(&source, &source.files[at], fetcher)?.wanted;
        }
    }
    Ok(source)
}

struct Hub<'a> {
    http: Http,
    repo: &'a str,
    folder: HubRepo,
    locks: PathBuf,
}

impl<'a> Hub<'a> {
    fn new(repo: &'a str, paths: &Paths, fetcher: &Fetcher) -> Result<Self> {
        let yes = |value: String| matches!(value.to_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE");
        if non_empty("HF_HUB_OFFLINE").is_some_and(yes) {
            return Err(Error::model("HF_HUB_OFFLINE is set").hint("unset it to fetch from a hub"));
        }
        let cache = paths.hugging_face();
        Ok(Self {
            http: Http::from_env(&paths.hugging_face_home(), fetcher.interrupt.clone()),
            repo,
            folder: HubRepo::new(&cache, repo),
            // huggingface_hub locks the same files.
            locks: cache.join(".locks").join(format!("models--{}", repo.replace('/', "--"))),
        })
    }

    /// Whether the bytes of a file are here; a blob of another size is damaged.
    fn has_blob(&self, file: &FileSpec) -> bool {
        file.sha256.as_ref().is_some_and(|digest| is_complete(&self.folder.blob(digest), file))
    }

    fn unfinished(&self, digest: &str) -> PathBuf {
        self.folder.blob(digest).with_extension("qchat-incomplete")
    }

    /// The source with the names of its files.
    fn named(&self, source: &Source, fetcher: &mut Fetcher) -> Result<Source> {
        let mut source = source.clone();
        if source.files.is_empty() {
            (source.quant, source.files) = self.files_of(source.quant.as_deref(), fetcher)?;
        }
        Ok(source)
    }

    /// The GGUF files of one quantisation; a split model's parts all together.
    fn files_of(&self, quant: Option<&str>, fetcher: &mut Fetcher) -> Result<(Option<String>, Vec<FileSpec>)> {
        #[derive(Deserialize)]
        struct Listing {
            siblings: Vec<Sibling>,
        }
        #[derive(Deserialize)]
        struct Sibling {
            rfilename: String,
        }
        let repo = self.repo;
        let url = format!("{}/api/models/{repo}", self.http.endpoint());
        let (mut reply, _) = self.http.follow(&url, &Part::default(), fetcher)?;
        check(&reply, self.http.endpoint(), repo)?;
        let listing = reply.body_mut().with_config().limit(16 << 20).read_to_string();
        let listing = listing.map_err(|error| error.to_string());
        let listing = listing.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
        let listing: Listing =
            listing.map_err(|error| Error::model(format!("the list of files of {repo} cannot be read: {error}")))?;
        let all: Vec<String> = listing.siblings.into_iter().map(|file| file.rfilename).collect();
        let (quant, files) = pick(&all, quant).map_err(|found| {
            let gguf = all.iter().filter(|name| is_gguf(name));
            let list = gguf.take(12).map(String::as_str).collect::<Vec<_>>().join(", ");
            let quant = quant.map_or_else(String::new, |quant| format!(" for {quant}"));
            Error::model(format!("{repo} has {found}{quant}, of: {list}"))
                .hint(format!("name one: hf:{repo}/FILE.gguf"))
        })?;
        Ok((quant, files.into_iter().map(|name| FileSpec { name, bytes: None, sha256: None }).collect()))
    }

    /// Asks the hub for commit, size and digest of a file; only its first answer has them.
    fn describe(&self, source: &Source, file: &FileSpec, fetcher: &mut Fetcher) -> Result<Described> {
        let mut url =
            format!("{}/{}/resolve/{}/{}", self.http.endpoint(), self.repo, revision(source), escaped(&file.name));
        // Of the bytes only one, since a server without redirects would send all of them.
        let part = Part { from: 0, to: Some(0), if_range: None };
        let mut reply = self.http.get(&url, &part, fetcher)?;
        // A renamed repository answers with its new place first, and only there with commit and digest.
        for _ in 0..4 {
            let states_commit = reply.headers().contains_key("x-repo-commit");
            let is_own = |next: &String| origin(next) == origin(self.http.endpoint());
            let next = redirect(&reply, &url).filter(|next| is_own(next) && !states_commit);
            let Some(next) = next else { break };
            url = next;
            reply = self.http.get(&url, &part, fetcher)?;
        }
        check(&reply, self.http.endpoint(), self.repo)?;
        let mut wanted = file.clone();
        wanted.bytes = wanted.bytes.or_else(|| header(&reply, "x-linked-size")?.parse().ok());
        wanted.sha256 = wanted.sha256.or_else(|| digest_of(&header(&reply, "x-linked-etag")?));
        Ok(Described { wanted, url, commit: header(&reply, "x-repo-commit").filter(|commit| is_hex(commit)) })
    }

    /// The file as it is linked; none where another process brought it meanwhile.
    fn download(&self, source: &Source, file: &Described, fetcher: &mut Fetcher) -> Result<Option<PathBuf>> {
        let Described { wanted, url, commit } = file;
        // The name of the unfinished file holds the digest, so that one is never continued with another's bytes.
        let named = wanted.sha256.as_deref().unwrap_or("unnamed");
        let lock = self.locks.join(format!("{named}.lock"));
        let _turn = Turn::wait(&lock, &wanted.name, fetcher)?;
        let snapshot = commit.as_deref().unwrap_or(revision(source));
        if self.folder.in_snapshot(snapshot, wanted).is_some() {
            return Ok(None);
        }
        let unfinished = self.unfinished(named);
        make_folder(unfinished.parent().unwrap_or(&unfinished))?;
        let tag = tag_file(&unfinished);
        let digest = if self.has_blob(wanted) {
            named.to_owned()
        } else {
            let mut incoming = Incoming::resume(unfinished, fetcher)?;
            if wanted.sha256.is_none() || wanted.bytes.is_some_and(|bytes| incoming.bytes > bytes) {
                incoming.restart()?;
            }
            fetcher.progress.begin(&wanted.name, wanted.bytes);
            let bytes = wanted.bytes;
            let what = Wanted { url, repo: self.repo, name: &wanted.name, bytes, tag: tag.clone() };
            let transferred = transfer(&self.http, &what, &mut incoming, fetcher);
            fetcher.progress.end();
            transferred?;
            let completed = incoming.complete(wanted, |digest| self.folder.blob(digest));
            let _ = std::fs::remove_file(&tag);
            completed?.0
        };
        // Without a commit nobody can say what main is.
        let is_main = revision(source) == "main" && commit.is_some();
        self.folder.link(snapshot, &wanted.name, &digest, is_main).map(Some).map_err(|error| {
            Error::model(format!("{} cannot be linked: {error}", wanted.name)).hint("HF_HUB_CACHE moves the folder")
        })
    }
}

fn revision(source: &Source) -> &str {
    source.revision.as_deref().unwrap_or("main")
}

/// A file's name in an address.
fn escaped(name: &str) -> String {
    use std::fmt::Write as _;
    name.bytes().fold(String::new(), |mut text, byte| {
        let is_plain = byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
        let _ = if is_plain { write!(text, "{}", char::from(byte)) } else { write!(text, "%{byte:02X}") };
        text
    })
}

/// The sha256 in an entity tag: quoted, perhaps marked as weak.
fn digest_of(etag: &str) -> Option<String> {
    let digest = etag.trim_start_matches("W/").trim_matches('"');
    (digest.len() == 64 && is_hex(digest)).then(|| digest.to_lowercase())
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit())
}
