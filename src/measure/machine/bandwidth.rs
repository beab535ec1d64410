//! How fast memory can be read: the ceiling of decode, which reads every weight once for each token.
//!
//! The method is that of STREAM (1995), reading only: threads that each sum their own part of a buffer that no cache
//! holds, timed as a whole. Unlike STREAM a thread reads from several places in turn: from front to back a core waits
//! for memory most of the time, and the few threads of a small machine do not get all that its memory gives (30 of
//! 45 GB/s on two cores of a Sapphire Rapids).

use std::thread;
use std::time::Duration;

use serde::Serialize;

use super::readers::Readers;
use crate::words::size;

/// Bytes a second, all threads together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bandwidth {
    /// Of the best pass: the ceiling. Whatever else runs can only take from a pass and never add to it, so the best
    /// one is nearest to what the machine can do. Tokens a second do not exceed `best` / bytes of weights, unless a
    /// good part of the weights fits into the last-level cache.
    pub best: f64,
    /// Of the middle pass: what is usual with what else runs now. Far below `best`, the machine was busy.
    pub median: f64,
    pub threads: usize,
    pub passes: usize,
    /// Of the buffers together.
    pub bytes: u64,
    /// Whether the buffers are known to be at least three times the last-level cache. If not, the figures may be partly
    /// those of the cache.
    pub past_cache: bool,
}

const LEAST: u64 = 256 << 20;
const MOST: u64 = 1 << 30;
/// Below this even a small cache would answer.
const TOO_LITTLE: u64 = 64 << 20;
const TIME: Duration = Duration::from_millis(300);

/// Takes under a second. `cache` is [`super::cores::Cores::last_level_cache`], `available` the bytes that may be taken:
/// at most an eighth of them is.
pub fn measure(threads: usize, cache: Option<u64>, available: Option<u64>) -> Result<Bandwidth, String> {
    let threads = threads.max(1);
    let bytes = buffer(cache, available)?;
    let mut rates = thread::scope(|scope| Readers::spawn(scope, threads, bytes as usize / threads)?.rates(TIME))?;
    rates.sort_by(f64::total_cmp);
    Ok(Bandwidth {
        best: rates[rates.len() - 1],
        median: rates[rates.len() / 2],
        threads,
        passes: rates.len(),
        bytes,
        past_cache: cache.is_some_and(|cache| bytes >= cache.saturating_mul(3)),
    })
}

/// Bytes to read in a pass.
fn buffer(cache: Option<u64>, available: Option<u64>) -> Result<u64, String> {
    let wanted = cache.map_or(MOST, |cache| cache.saturating_mul(4).clamp(LEAST, MOST));
    let bytes = available.map_or(wanted, |available| wanted.min(available / 8));
    if bytes < TOO_LITTLE {
        let available = size(available.unwrap_or_default());
        return Err(format!("{available} of free memory is too little to measure its speed"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_exceed_the_cache_and_leave_memory_to_others() {
        let (mib, gib) = (1 << 20, 1 << 30);
        assert_eq!(buffer(Some(16 * mib), Some(64 * gib)), Ok(256 * mib));
        assert_eq!(buffer(Some(96 * mib), Some(64 * gib)), Ok(384 * mib));
        assert_eq!(buffer(Some(300 * mib), Some(64 * gib)), Ok(gib));
        assert_eq!(buffer(None, None), Ok(gib));
        assert_eq!(buffer(Some(u64::MAX), Some(gib)), Ok(128 * mib));
        let refused = buffer(Some(16 * mib), Some(200 * mib)).unwrap_err();
        assert_eq!(refused, "210 MB of free memory is too little to measure its speed");
    }
}
