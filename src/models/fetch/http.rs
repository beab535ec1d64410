//! Requests to a hub: the token goes to the hub's own host and nowhere else, refusals are explained, and a server that asks
//! for patience gets it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ureq::Agent;
use ureq::http::Response;

use super::Fetcher;
use super::patient::{pause, wait_for};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::paths::non_empty;

/// Tries of a request that the server cannot answer now.
const TRIES: u32 = 5;
/// A server that asks for a longer pause is given up.
const LONGEST: Duration = Duration::from_secs(90);
const REDIRECTS: usize = 8;

pub(super) type Reply = Response<ureq::Body>;

/// A hub and the way to it.
#[derive(Clone)]
pub(super) struct Http {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
    interrupt: Interrupt,
    /// A transfer that brings nothing for this long is stalled.
    pub(super) silence: Duration,
}

/// Which bytes of a file, and of which version.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    pub(super) from: u64,
    /// The last byte.
    pub(super) to: Option<u64>,
    /// The version's entity tag: of another one the server sends the whole file.
    pub(super) if_range: Option<String>,
}

impl Http {
    /// As `HF_ENDPOINT`, `HF_TOKEN`, `HF_TOKEN_PATH` and `HF_HUB_DOWNLOAD_TIMEOUT` say; `home` is where the token file is.
    pub(super) fn from_env(home: &Path, interrupt: Interrupt) -> Self {
        let seconds = non_empty("HF_HUB_DOWNLOAD_TIMEOUT").and_then(|text| text.parse::<f64>().ok());
        let silence = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let silence = silence.filter(|silence| !silence.is_zero()).unwrap_or(Duration::from_secs(30));
        let config = Agent::config_builder()
            .timeout_resolve(Some(Duration::from_secs(5)))
            .timeout_connect(Some(Duration::from_secs(8)))
            .timeout_recv_response(Some(silence))
            // Redirects are followed by hand: the first answer names commit and digest, and the token stays here.
            .max_redirects(0)
            .http_status_as_error(false)
            .tls_config(ureq::tls::TlsConfig::builder().root_certs(ureq::tls::RootCerts::PlatformVerifier).build())
            .build();
        let token_file = || {
            let path = non_empty("HF_TOKEN_PATH").map_or_else(|| home.join("token"), PathBuf::from);
            std::fs::read_to_string(path).ok()
        };
        let endpoint = non_empty("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into());
        let token = non_empty("HF_TOKEN").or_else(token_file).map(|token| token.trim().to_owned());
        Self {
            agent: config.into(),
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: token.filter(|token| !token.is_empty()),
            interrupt,
            silence,
        }
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// One request. Redirects are answers.
    pub(super) fn once(&self, url: &str, part: &Part) -> Result<Reply> {
        let mut request = self.agent.get(url).header("user-agent", concat!("qchat/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = self.token.as_ref().filter(|_| origin(url) == origin(&self.endpoint)) {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if part.from > 0 || part.to.is_some() {
            let to = part.to.map_or_else(String::new, |to| to.to_string());
            request = request.header("range", format!("bytes={}-{to}", part.from));
            if let Some(tag) = &part.if_range {
                request = request.header("if-range", tag);
            }
        }
        let response = wait_for(&self.interrupt, move || request.call())?;
        response.map_err(|error| Error::model(format!("{} does not answer: {error}", host(url))))
    }

    /// The same, with pauses where the server asks for them or cannot answer now.
    pub(super) fn get(&self, url: &str, part: &Part, fetcher: &mut Fetcher) -> Result<Reply> {
        let mut tries = 0;
        loop {
            let reply = self.once(url, part)?;
            let status = reply.status().as_u16();
            tries += 1;
            if tries == TRIES || !(status == 429 || matches!(status, 500 | 502 | 503 | 504)) {
                return Ok(reply);
            }
            let asked =
                header(&reply, "retry-after").and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
            if asked.is_some_and(|asked| asked > LONGEST) {
                return Ok(reply);
            }
            let wait = asked.unwrap_or_else(|| back_off(tries));
            fetcher.progress.note(&format!(
                "{} answers {status}; trying again in {:.0} s ({tries} of {})",
                host(url),
                wait.as_secs_f64().ceil(),
                TRIES - 1
            ));
            pause(wait, &self.interrupt)?;
        }
    }

    /// The answer at the end of all redirects, and where that is.
    pub(super) fn follow(&self, url: &str, part: &Part, fetcher: &mut Fetcher) -> Result<(Reply, String)> {
        let mut location = url.to_owned();
        for _ in 0..=REDIRECTS {
            let reply = self.get(&location, part, fetcher)?;
            match redirect(&reply, &location) {
                Some(next) => location = next,
                None => return Ok((reply, location)),
            }
        }
        Err(Error::model(format!("{} sends from one place to the next", host(url))))
    }
}

/// Half a second, then twice as long each time.
pub(super) fn back_off(failures: u32) -> Duration {
    Duration::from_millis(250) * 2u32.saturating_pow(failures.min(8))
}

/// Where an answer sends, as a whole address.
pub(super) fn redirect(reply: &Reply, location: &str) -> Option<String> {
    let next = header(reply, "location").filter(|_| reply.status().is_redirection())?;
    Some(if next.starts_with('/') { format!("{}{next}", origin(location)) } else { next })
}

pub(super) fn header(reply: &Reply, name: &str) -> Option<String> {
    Some(reply.headers().get(name)?.to_str().ok()?.to_owned())
}

/// Says what a refusal means.
pub(super) fn check(reply: &Reply, endpoint: &str, repo: &str) -> Result<()> {
    let page = format!("{endpoint}/{repo}");
    let (what, hint) = match reply.status().as_u16() {
        200..=399 => return Ok(()),
        401 => (
            format!("{repo} is private, gated or does not exist (401)"),
            format!("accept its terms at {page}, then set HF_TOKEN"),
        ),
        403 => (
            format!("access to {repo} is refused (403)"),
            format!("accept its terms at {page}, and check that HF_TOKEN may read it"),
        ),
        404 => (format!("{repo} has no such file (404)"), format!("its files are at {page}/tree/main")),
        429 => ("there were too many requests (429)".to_owned(), "wait a little, or set HF_TOKEN".to_owned()),
        status => (format!("the server answers {status}"), "try again later".to_owned()),
    };
    Err(Error::model(what).hint(hint))
}

/// `https://host:port` of an address.
pub(super) fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    &url[..url[host..].find('/').map_or(url.len(), |at| host + at)]
}

pub(super) fn host(url: &str) -> &str {
    origin(url).rsplit('/').next().unwrap_or(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_ends_where_the_path_begins() {
        assert_eq!(origin("https://h:1/a/b"), "https://h:1");
        assert_eq!(origin("https://h"), "https://h");
        // A host that only begins like another is another.
        assert_ne!(origin("https://hub.example.evil/x"), origin("https://hub.example/x"));
        assert_eq!(host("https://h:1/a"), "h:1");
    }
}
