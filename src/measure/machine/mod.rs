//! What the machine is and what it can do at best, measured in seconds: for `qchat doctor` and the benchmarks.
//!
//! Nothing here knows of models, engines or settings. What a system does not tell is None, and what cannot be measured
//! is an error of one line: neither ever fails an answer.

pub mod bandwidth;
pub mod cores;
pub mod disk;
pub mod energy;
pub mod features;
pub mod peak;
mod readers;

/// A system's files for the tests of this room: names below a root, and what is in them.
#[cfg(test)]
fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = root.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}
