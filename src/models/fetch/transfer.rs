//! One file from a hub, however often the line breaks: it grows in order, so that a kill at any byte leaves a beginning that
//! can be gone on with, and several ranges come at once where that proves faster.

use std::collections::VecDeque;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::Fetcher;
use super::http::{Http, Part, Reply, back_off, check, header, host};
use super::incoming::{Failure, Incoming};
use super::patient::{Patient, pause};
use crate::error::{Error, Kind, Result};

/// Failures in a row, none of which brought a byte, before a transfer is given up.
const TRIES: u32 = 5;
/// Bytes of a range; ranges at once. Together they bound the memory.
const RANGE: u64 = 4 << 20;
const AT_ONCE: usize = 4;
/// Bytes over which one way is measured before the other is tried.
const SAMPLE: u64 = 24 << 20;
/// How much faster several ranges must be to stay.
const FASTER: f64 = 1.15;

/// What is transferred.
pub(super) struct Wanted<'a> {
    /// At the hub; the way from there to the bytes is found anew after each failure, since it may expire.
    pub(super) url: &'a str,
    pub(super) repo: &'a str,
    pub(super) name: &'a str,
    pub(super) bytes: Option<u64>,
    /// Where the entity tag of what came so far is kept.
    pub(super) tag: PathBuf,
}

/// Which way the bytes come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    One,
    Several,
}

/// How fast each way was, in bytes a second.
#[derive(Default)]
struct Speeds {
    one: Option<f64>,
    several: Option<f64>,
}

impl Speeds {
    fn choose(&self, left: u64) -> Way {
        match (self.one, self.several) {
            (Some(one), Some(several)) if several > FASTER * one => Way::Several,
            (Some(_), None) if left > 2 * SAMPLE => Way::Several,
            _ => Way::One,
        }
    }
}

/// Brings all bytes of a file into `incoming`.
///
/// # Errors
/// When the server refuses, or nothing comes any more; what came stays.
pub(super) fn transfer(http: &Http, wanted: &Wanted, incoming: &mut Incoming, fetcher: &mut Fetcher) -> Result<()> {
    // A file that starts over and breaks at the same place again has not come further.
    let (mut failures, mut furthest) = (0, incoming.bytes);
    let mut speeds = Speeds::default();
    loop {
        if wanted.bytes == Some(incoming.bytes) {
            return Ok(());
        }
        let error = match attempt(http, wanted, incoming, &mut speeds, fetcher) {
            Ok(()) if wanted.bytes.is_none_or(|bytes| bytes <= incoming.bytes) => return Ok(()),
            Ok(()) => Error::model("the transfer broke off"),
            Err(Failure::Final(error)) => return Err(error),
            Err(Failure::Broken(error)) => error,
        };
        failures = if incoming.bytes > furthest { 1 } else { failures + 1 };
        furthest = furthest.max(incoming.bytes);
        if failures == TRIES {
            return Err(error);
        }
        let wait = back_off(failures);
        fetcher.progress.note(&format!(
            "{}: {error}; going on at {:.1} MB in {:.0} s",
            wanted.name,
            incoming.bytes as f64 / 1e6,
            wait.as_secs_f64().ceil()
        ));
        pause(wait, fetcher.interrupt)?;
    }
}

/// Bytes of one connection, or of several, to the end or to a failure.
fn attempt(
    http: &Http,
    wanted: &Wanted,
    incoming: &mut Incoming,
    speeds: &mut Speeds,
    fetcher: &mut Fetcher,
) -> Result<(), Failure> {
    let tag = std::fs::read_to_string(&wanted.tag).ok().filter(|tag| !tag.is_empty());
    let part = Part { from: incoming.bytes, to: None, if_range: tag.clone() };
    let (reply, location) = http.follow(wanted.url, &part, fetcher).map_err(passing)?;
    let now = header(&reply, "etag").filter(|tag| !tag.starts_with("W/"));
    match reply.status().as_u16() {
        // Another version, or other bytes than were asked for: nothing of what came can be kept.
        206 if tag.is_some() && now != tag || first_byte(&reply) != Some(incoming.bytes) && reply.status() == 206 => {
            incoming.restart().map_err(Failure::Final)?;
            let _ = std::fs::remove_file(&wanted.tag);
            return Err(Failure::Broken(Error::model("the file changed on the server")));
        }
        206 => {}
        416 if incoming.bytes > 0 => {
            incoming.restart().map_err(Failure::Final)?;
            return Err(Failure::Broken(Error::model("the server has another file")));
        }
        _ => {
            // What is answered now has been waited for already.
            check(&reply, http.endpoint(), wanted.repo).map_err(Failure::Final)?;
            incoming.restart().map_err(Failure::Final)?;
        }
    }
    match &now {
        // Whoever is killed while it is written has no bytes to lose yet.
        Some(new) if tag.as_ref() != Some(new) => {
            let _ = std::fs::write(&wanted.tag, new);
        }
        Some(_) => {}
        None => {
            let _ = std::fs::remove_file(&wanted.tag);
        }
    }
    let takes_ranges = reply.status() == 206 || header(&reply, "accept-ranges").is_some_and(|unit| unit == "bytes");
    let mut body = Patient::new(reply.into_body().into_reader(), http.silence, fetcher.interrupt.clone());
    let whole = wanted.bytes.filter(|_| takes_ranges);
    loop {
        let left = whole.map_or(0, |bytes| bytes.saturating_sub(incoming.bytes));
        let began = (Instant::now(), incoming.bytes);
        let rate = |incoming: &Incoming| (incoming.bytes - began.1) as f64 / began.0.elapsed().as_secs_f64().max(1e-3);
        match speeds.choose(left) {
            Way::One => {
                let sample = if whole.is_some() { SAMPLE } else { u64::MAX };
                // One byte too many tells an endless body from a whole one.
                let left = wanted.bytes.map(|bytes| bytes.saturating_sub(incoming.bytes).saturating_add(1));
                let ended = incoming.append(&mut body, sample.min(left.unwrap_or(u64::MAX)), fetcher)?;
                if ended || wanted.bytes.is_some_and(|bytes| incoming.bytes > bytes) {
                    return Ok(());
                }
                speeds.one = Some(rate(incoming));
            }
            Way::Several => {
                // The one connection is not read meanwhile, and is of no use afterwards.
                drop(body);
                let to = whole.unwrap_or(u64::MAX);
                let to = if speeds.several.is_none() { to.min(incoming.bytes + SAMPLE) } else { to };
                let came = several(http, &location, now.as_deref(), incoming, to, fetcher);
                // Where several bring nothing, one may still bring something.
                if came.is_err() && (speeds.several.is_none() || incoming.bytes == began.1) {
                    speeds.several = Some(0.0);
                }
                came?;
                speeds.several = Some(rate(incoming));
                if whole == Some(incoming.bytes) {
                    return Ok(());
                }
                let part = Part { from: incoming.bytes, to: None, if_range: now.clone() };
                let reply = http.get(&location, &part, fetcher).map_err(passing)?;
                is_part(&reply, &part, &location).map_err(Failure::Broken)?;
                body = Patient::new(reply.into_body().into_reader(), http.silence, fetcher.interrupt.clone());
            }
        }
    }
}

/// What a request failed of: the line, if not a Ctrl-C.
fn passing(error: Error) -> Failure {
    if error.kind() == Kind::Interrupted { Failure::Final(error) } else { Failure::Broken(error) }
}

/// A range on its way, and how many of its bytes have come.
type OnItsWay = (Receiver<Result<Vec<u8>>>, Arc<AtomicU64>);

/// Up to byte `to`: a few ranges on their way at once, appended in order.
fn several(
    http: &Http,
    location: &str,
    tag: Option<&str>,
    incoming: &mut Incoming,
    to: u64,
    fetcher: &mut Fetcher,
) -> Result<(), Failure> {
    let mut next = incoming.bytes;
    let mut on_their_way: VecDeque<OnItsWay> = VecDeque::new();
    // Taken again: allocators keep what many threads gave back.
    let mut spare: Vec<Vec<u8>> = Vec::new();
    loop {
        while on_their_way.len() < AT_ONCE && next < to {
            let last = (next + RANGE).min(to) - 1;
            let part = Part { from: next, to: Some(last), if_range: tag.map(str::to_owned) };
            let (http, location, (sender, receiver)) = (http.clone(), location.to_owned(), channel());
            let (buffer, came) = (spare.pop().unwrap_or_default(), Arc::new(AtomicU64::new(0)));
            on_their_way.push_back((receiver, Arc::clone(&came)));
            std::thread::spawn(move || sender.send(range(&http, &location, &part, buffer, &came)));
            next = last + 1;
        }
        let Some((first, came)) = on_their_way.pop_front() else { return Ok(()) };
        let mut heard = (Instant::now(), 0);
        let bytes = loop {
            if fetcher.interrupt.is_set() {
                return Err(Failure::Final(Error::interrupted()));
            }
            match first.recv_timeout(Duration::from_millis(30)) {
                Ok(bytes) => break bytes.map_err(passing)?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::Broken(Error::model("a network thread ended early")));
                }
                // Slow is not silent.
                Err(RecvTimeoutError::Timeout) if came.load(Ordering::Relaxed) != heard.1 => {
                    heard = (Instant::now(), came.load(Ordering::Relaxed));
                }
                Err(RecvTimeoutError::Timeout) if heard.0.elapsed() > http.silence => {
                    return Err(Failure::Broken(Error::model("the transfer stalled")));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        spare.extend(incoming.push(bytes, fetcher).map_err(Failure::Final)?);
    }
}

/// The bytes of one range, exactly, into a buffer; `came` says how many there are so far.
fn range(http: &Http, location: &str, part: &Part, mut buffer: Vec<u8>, came: &AtomicU64) -> Result<Vec<u8>> {
    let length = part.to.map_or(0, |to| to + 1 - part.from);
    let reply = http.once(location, part)?;
    is_part(&reply, part, location)?;
    buffer.clear();
    buffer.reserve_exact(length as usize);
    let mut body = reply.into_body().into_reader().take(length);
    loop {
        let read = body.by_ref().take(1 << 17).read_to_end(&mut buffer);
        let read = read.map_err(|error| Error::model(format!("the transfer broke off: {error}")))?;
        came.store(buffer.len() as u64, Ordering::Relaxed);
        match read {
            _ if buffer.len() as u64 == length => return Ok(buffer),
            0 => return Err(Error::model("the transfer broke off")),
            _ => {}
        }
    }
}

/// That an answer is the part that was asked for, of the version that was asked for.
fn is_part(reply: &Reply, part: &Part, location: &str) -> Result<()> {
    if reply.status() != 206 || first_byte(reply) != Some(part.from) {
        return Err(Error::model(format!("{} sends no ranges any more ({})", host(location), reply.status().as_u16())));
    }
    // Not every server knows If-Range.
    if part.if_range.is_some() && header(reply, "etag") != part.if_range {
        return Err(Error::model("the file changed on the server"));
    }
    Ok(())
}

/// The first byte of `content-range: bytes FIRST-LAST/ALL`.
fn first_byte(reply: &Reply) -> Option<u64> {
    header(reply, "content-range")?.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}

/// Where the entity tag of an unfinished file is kept.
pub(super) fn tag_file(unfinished: &Path) -> PathBuf {
    unfinished.with_extension("qchat-etag")
}
