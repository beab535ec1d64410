//! Files of a Hugging Face repository, into its own cache. `HF_ENDPOINT` names a mirror, `HF_TOKEN` (or the token file)
//! opens gated models, `HF_HUB_OFFLINE` forbids the network.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use ureq::Agent;
use ureq::http::Response;

use super::patient::{Patient, wait_for};
use super::{Fetcher, Incoming, make_folder};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::models::hub::{DEFAULT_QUANT, HubRepo, is_gguf, of_quant};
use crate::models::registry::{FileSpec, Source};
use crate::paths::{Paths, non_empty};

struct Hub {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
    interrupt: Interrupt,
}

/// Fetches the files of `source`; where it names none, those of its quantisation. Answers the source with its files.
pub(super) fn fetch(
    repo: &str,
    source: &Source,
    paths: &Paths,
    fetcher: &mut Fetcher,
) -> Result<(Source, Vec<PathBuf>)> {
    let yes = |value: String| matches!(value.to_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE");
    if non_empty("HF_HUB_OFFLINE").is_some_and(yes) {
        return Err(Error::model("HF_HUB_OFFLINE is set"));
    }
    let hub = Hub::from_env(&paths.hugging_face_home(), fetcher.interrupt.clone());
    let mut source = source.clone();
    if source.files.is_empty() {
        source.quant = Some(source.quant.unwrap_or_else(|| DEFAULT_QUANT.into()));
        source.files = hub.files_of(repo, source.quant.as_deref().unwrap_or(DEFAULT_QUANT))?;
    }
    let folder = HubRepo::new(&paths.hugging_face(), repo);
    let revision = source.revision.as_deref().unwrap_or("main");
    let download = |file: &FileSpec| hub.download(repo, revision, file, &folder, fetcher);
    let files = source.files.iter().map(download).collect::<Result<Vec<_>>>()?;
    Ok((source, files))
}

impl Hub {
    fn from_env(home: &Path, interrupt: Interrupt) -> Self {
        let config = Agent::config_builder()
            .timeout_resolve(Some(Duration::from_secs(5)))
            .timeout_connect(Some(Duration::from_secs(8)))
            .timeout_recv_response(Some(Duration::from_secs(30)))
            // Redirects are followed by hand: the first answer names commit and digest, and the token stays here.
            .max_redirects(0)
            .http_status_as_error(false)
            .tls_config(ureq::tls::TlsConfig::builder().root_certs(ureq::tls::RootCerts::PlatformVerifier).build())
            .build();
        let token_file = || {
            let path = non_empty("HF_TOKEN_PATH").map_or_else(|| home.join("token"), PathBuf::from);
            std::fs::read_to_string(path).ok()
        };
        Self {
            agent: config.into(),
            endpoint: non_empty("HF_ENDPOINT")
                .unwrap_or_else(|| "https://huggingface.co".into())
                .trim_end_matches('/')
                .to_owned(),
            token: non_empty("HF_TOKEN").or_else(token_file).map(|token| token.trim().to_owned()),
            interrupt,
        }
    }

    fn get(&self, url: &str, from: u64) -> Result<Response<ureq::Body>> {
        let mut request = self.agent.get(url).header("user-agent", concat!("qchat/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = self.token.as_ref().filter(|_| url.starts_with(&format!("{}/", self.endpoint))) {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if from > 0 {
            request = request.header("range", format!("bytes={from}-"));
        }
        let response = wait_for(&self.interrupt, move || request.call())?;
        response.map_err(|error| Error::model(format!("{} does not answer: {error}", host(url))))
    }

    /// The GGUF files of one quantisation; a split model's parts all together.
    fn files_of(&self, repo: &str, quant: &str) -> Result<Vec<FileSpec>> {
        #[derive(Deserialize)]
        struct Listing {
            siblings: Vec<Sibling>,
        }
        #[derive(Deserialize)]
        struct Sibling {
            rfilename: String,
        }
        let mut response = self.get(&format!("{}/api/models/{repo}", self.endpoint), 0)?;
        check(&response, repo)?;
        let listing = response.body_mut().with_config().limit(16 << 20).read_to_string();
        let listing: Listing =
            listing
                .map_err(anyhow::Error::from)
                .and_then(|text| Ok(serde_json::from_str(&text)?))
                .map_err(|error| Error::model(format!("the list of files of {repo} cannot be read: {error}")))?;
        let all: Vec<String> = listing.siblings.into_iter().map(|file| file.rfilename).collect();
        let files = of_quant(&all, quant).map_err(|found| {
            let gguf = all.iter().filter(|name| is_gguf(name));
            let list = gguf.take(12).map(String::as_str).collect::<Vec<_>>().join(", ");
            Error::model(format!("{repo} has {found} for {quant}, of: {list}"))
                .hint(format!("name one: hf:{repo}/FILE.gguf"))
        })?;
        Ok(files.into_iter().map(|name| FileSpec { name, bytes: None, sha256: None }).collect())
    }

    fn download(
        &self,
        repo: &str,
        revision: &str,
        file: &FileSpec,
        folder: &HubRepo,
        fetcher: &mut Fetcher,
    ) -> Result<PathBuf> {
        if let Some(path) = folder.find(Some(revision), std::slice::from_ref(file)).and_then(|mut paths| paths.pop()) {
            return Ok(path);
        }
        let mut location = format!("{}/{repo}/resolve/{revision}/{}", self.endpoint, file.name);
        let mut response = self.get(&location, 0)?;
        check(&response, repo)?;
        let header =
            |response: &Response<ureq::Body>, name: &str| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
        let redirect = |response: &Response<ureq::Body>| {
            header(response, "location").filter(|_| response.status().is_redirection())
        };
        // A renamed repository answers with its new place first, and only there with commit and digest.
        for _ in 0..4 {
            let states_commit = response.headers().contains_key("x-repo-commit");
            let Some(next) = redirect(&response).filter(|next| next.starts_with('/') && !states_commit) else { break };
            location = format!("{}{next}", origin(&location));
            response = self.get(&location, 0)?;
            check(&response, repo)?;
        }
        let commit = header(&response, "x-repo-commit").filter(|commit| is_hex(commit));
        let mut wanted = file.clone();
        wanted.bytes = wanted.bytes.or_else(|| header(&response, "x-linked-size")?.parse().ok());
        wanted.sha256 = wanted.sha256.or_else(|| digest_of(&header(&response, "x-linked-etag")?));

        // The name of the unfinished file holds the digest, so that one is never continued with another's bytes.
        let blob = folder.blob(wanted.sha256.as_deref().unwrap_or("unnamed"));
        make_folder(blob.parent().unwrap_or(&blob))?;
        let mut incoming = Incoming::resume(blob.with_extension("qchat-incomplete"))?;
        if wanted.sha256.is_none() || wanted.bytes.is_some_and(|bytes| incoming.bytes > bytes) {
            incoming.restart()?;
        }
        if incoming.bytes > 0 && !response.status().is_redirection() {
            response = self.get(&location, incoming.bytes)?;
        }
        for _ in 0..8 {
            let Some(next) = redirect(&response) else { break };
            location = if next.starts_with('/') { format!("{}{next}", origin(&location)) } else { next };
            response = self.get(&location, incoming.bytes)?;
        }
        if response.status() == 416 && wanted.bytes == Some(incoming.bytes) {
            // Nothing is missing.
        } else {
            check(&response, repo)?;
            if response.status().is_redirection() {
                return Err(Error::model(format!("the server sends from one place to the next for {}", file.name)));
            }
            if response.status() != 206 {
                incoming.restart()?;
            }
            fetcher.progress.begin(&file.name, wanted.bytes);
            let mut body = Patient::new(response.into_body().into_reader(), self.interrupt.clone());
            let appended = incoming.append(&mut body, fetcher);
            fetcher.progress.end();
            appended?;
        }
        let (digest, _) = incoming.complete(&wanted, |digest| folder.blob(digest))?;
        // Without a commit nobody can say what main is.
        let is_main = revision == "main" && commit.is_some();
        folder
            .link(commit.as_deref().unwrap_or(revision), &file.name, &digest, is_main)
            .map_err(|error| Error::model(format!("{} cannot be linked: {error}", file.name)))
    }
}

fn check(response: &Response<ureq::Body>, repo: &str) -> Result<()> {
    let what = match response.status().as_u16() {
        200..=399 => return Ok(()),
        401 => {
            format!("{repo} is private, gated or does not exist (401): set HF_TOKEN, and accept its terms on its page")
        }
        403 => format!("access to {repo} is refused (403): accept its terms on its page, and check HF_TOKEN"),
        404 => format!("{repo} has no such file (404)"),
        429 => "too many requests (429): wait a little".to_owned(),
        status => format!("the server answers {status}"),
    };
    Err(Error::model(what))
}

/// The sha256 in an entity tag: quoted, perhaps marked as weak.
fn digest_of(etag: &str) -> Option<String> {
    let digest = etag.trim_start_matches("W/").trim_matches('"');
    (digest.len() == 64 && is_hex(digest)).then(|| digest.to_lowercase())
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// `https://host:port` of an address.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    &url[..url[host..].find('/').map_or(url.len(), |at| host + at)]
}

fn host(url: &str) -> &str {
    origin(url).rsplit('/').next().unwrap_or(url)
}
