//! The processor and the memory beside it, as the system describes them.

use std::collections::BTreeMap;
use std::fs::{read_dir, read_to_string};
use std::path::Path;

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cores {
    /// As its maker calls it; most ARM systems under Linux do not say.
    pub model: Option<String>,
    pub physical: usize,
    /// What the scheduler lets this process use: fewer than the machine has under an affinity mask or a CPU quota.
    pub logical: usize,
    /// Bytes of the last-level caches, all of them together: a processor of several dies has one on each. A virtual
    /// machine states its host's, of which it has a share.
    pub last_level_cache: Option<u64>,
    /// Bytes in the machine. What may still be taken is [`crate::models::available`].
    pub memory: Option<u64>,
}

impl Cores {
    pub fn here() -> Self {
        if cfg!(target_os = "macos") { Self::by_sysctl(sysctl) } else { Self::below(Path::new("/")) }
    }

    /// From Linux's files below `root`.
    fn below(root: &Path) -> Self {
        let file = |name: &str| read_to_string(root.join(name)).unwrap_or_default();
        let memory = value(&file("proc/meminfo"), "MemTotal").and_then(bytes);
        Self {
            model: value(&file("proc/cpuinfo"), "model name").map(str::to_owned),
            physical: num_cpus::get_physical(),
            logical: num_cpus::get(),
            last_level_cache: last_level_cache(&root.join("sys/devices/system/cpu")),
            memory,
        }
    }

    /// From what macOS answers to names. Apple's own processors tell the size of a cluster's L2 and not that of the
    /// system cache behind it.
    fn by_sysctl(ask: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name: &str| ask(name)?.parse::<u64>().ok().filter(|&number| number > 0);
        let caches = ["hw.l3cachesize", "hw.perflevel0.l2cachesize", "hw.l2cachesize"];
        Self {
            model: ask("machdep.cpu.brand_string"),
            physical: num_cpus::get_physical(),
            logical: num_cpus::get(),
            last_level_cache: caches.into_iter().find_map(number),
            memory: number("hw.memsize"),
        }
    }
}

fn sysctl(name: &str) -> Option<String> {
    let answer = std::process::Command::new("/usr/sbin/sysctl").args(["-n", name]).output().ok()?;
    let text = String::from_utf8(answer.stdout).ok()?.trim().to_owned();
    (answer.status.success() && !text.is_empty()).then_some(text)
}

/// The first value of a name, in a file of `name : value` lines.
pub(super) fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// `300 kB`, `307200K` or `32M` in bytes: the kernel's units are powers of 1024 in either case.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text[digits.len()..].trim() {
        "" => 1,
        "K" | "kB" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// Every processor's cache of the highest level, each counted once however many share it.
fn last_level_cache(processors: &Path) -> Option<u64> {
    let mut caches = BTreeMap::new();
    for processor in read_dir(processors).ok()?.flatten() {
        let of_processor = read_dir(processor.path().join("cache")).into_iter().flatten().flatten();
        let last = of_processor.filter_map(|index| {
            let file = |name: &str| Some(read_to_string(index.path().join(name)).ok()?.trim().to_owned());
            let level: u32 = file("level")?.parse().ok()?;
            Some((level, file("shared_cpu_list")?, bytes(&file("size")?)?))
        });
        if let Some((level, sharers, size)) = last.max() {
            caches.insert((level, sharers), size);
        }
    }
    (!caches.is_empty()).then(|| caches.values().sum())
}

#[cfg(test)]
mod tests {
    use super::super::system;
    use super::*;

    #[test]
    fn the_files_of_a_laptop() {
        let cache = "sys/devices/system/cpu/cpu0/cache/";
        let file = |name: &str| format!("{cache}{name}");
        let root = system(&[
            (
                "proc/cpuinfo",
                "processor\t: 0\nmodel name\t: AMD Ryzen 7 7840U w/ Radeon 780M Graphics\nflags\t\t: fpu\n",
            ),
            ("proc/meminfo", "MemTotal:       24684184 kB\nMemFree:         1000 kB\n"),
            (&file("index0/level"), "1\n"),
            (&file("index0/size"), "32K\n"),
            (&file("index0/shared_cpu_list"), "0-1\n"),
            (&file("index3/level"), "3\n"),
            (&file("index3/size"), "16384K\n"),
            (&file("index3/shared_cpu_list"), "0-15\n"),
            (&file("uevent"), ""),
            ("sys/devices/system/cpu/cpufreq/boost", "1\n"),
            ("sys/devices/system/cpu/online", "0-15\n"),
        ]);
        let cores = Cores::below(root.path());
        assert_eq!(cores.model.as_deref(), Some("AMD Ryzen 7 7840U w/ Radeon 780M Graphics"));
        assert_eq!((cores.last_level_cache, cores.memory), (Some(16 << 20), Some(24_684_184 << 10)));
    }

    #[test]
    fn dies_with_a_cache_each_add_up_and_a_core_without_l3_counts_its_l2() {
        let mut files = Vec::new();
        let caches = [(0, 3, "32M", "0-1"), (1, 3, "32M", "0-1"), (2, 3, "96M", "2"), (3, 2, "2048K", "3")];
        for (processor, level, size, sharers) in caches {
            let folder = format!("cpu{processor}/cache/index{level}");
            files.push((format!("{folder}/level"), level.to_string()));
            files.push((format!("{folder}/size"), size.to_owned()));
            files.push((format!("{folder}/shared_cpu_list"), format!("{sharers}\n")));
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        assert_eq!(last_level_cache(system(&files).path()), Some((32 + 96 + 2) << 20));
    }

    #[test]
    fn what_is_not_told_is_none() {
        let root = system(&[("proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\n"), ("proc/meminfo", "?\n")]);
        let cores = Cores::below(root.path());
        assert_eq!((cores.model, cores.last_level_cache, cores.memory), (None, None, None));
        assert!(cores.physical > 0 && cores.logical > 0);
        assert_eq!((bytes("12"), bytes("8 XB"), bytes(""), bytes("99999999999999999G")), (Some(12), None, None, None));
    }

    #[test]
    fn macos_is_asked_by_name() {
        let answers = |name: &str| {
            let answer = match name {
                "machdep.cpu.brand_string" => "Apple M2 Pro",
                "hw.l3cachesize" => "0",
                "hw.perflevel0.l2cachesize" => "16777216",
                "hw.memsize" => "17179869184",
                _ => return None,
            };
            Some(answer.to_owned())
        };
        let cores = Cores::by_sysctl(answers);
        assert_eq!(cores.model.as_deref(), Some("Apple M2 Pro"));
        assert_eq!((cores.last_level_cache, cores.memory), (Some(16 << 20), Some(16 << 30)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn it_is_known_here() {
        assert!(Cores::here().memory.is_some_and(|bytes| bytes > 1 << 20));
    }
}
