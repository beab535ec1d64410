//! The most memory that this process has had resident: its own, and what it touched of mapped files (a model's
//! weights).

use std::fs::{OpenOptions, read_to_string};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::cores::{bytes, value};

#[derive(Debug)]
pub struct Peak {
    process: PathBuf,
}

impl Peak {
    /// Sets the kernel's mark back to what is resident now where it may. There is one mark a process: of two of these
    /// at a time, the first loses what it saw before the second.
    pub fn start() -> Self {
        Self::start_below(Path::new("/"))
    }

    /// The same with the system's files below `root`.
    fn start_below(root: &Path) -> Self {
        let process = root.join("proc/self");
        // proc(5): 5 resets the peak resident set size.
        let _ =
            OpenOptions::new().write(true).open(process.join("clear_refs")).and_then(|mut file| file.write_all(b"5"));
        Self { process }
    }

    /// None where it is not known (this reads Linux's files).
    pub fn bytes(&self) -> Option<u64> {
        value(&read_to_string(self.process.join("status")).ok()?, "VmHWM").and_then(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::system;
    use super::*;

    const STATUS: (&str, &str) =
        ("proc/self/status", "Name:\tqchat\nVmPeak:\t  900 kB\nVmHWM:\t   812 kB\nVmRSS:\t 5 kB\n");

    #[test]
    fn it_is_the_high_water_mark_set_back_where_it_may() {
        let root = system(&[STATUS, ("proc/self/clear_refs", "")]);
        let peak = Peak::start_below(root.path());
        assert_eq!(peak.bytes(), Some(812 << 10));
        assert_eq!(read_to_string(root.path().join("proc/self/clear_refs")).unwrap(), "5");
        assert_eq!(Peak::start_below(system(&[]).path()).bytes(), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_touched_here_is_in_it() {
        let peak = Peak::start();
        let touched = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(peak.bytes().unwrap() >= touched.len() as u64);
    }
}
