//! How much memory this process may still take.

use std::fs::read_to_string;
use std::path::Path;

/// Bytes that this process may still take: what the kernel calls available, and what is left below the limits of its
/// control groups, whichever is less. Memory that holds cached files counts as free. None where it is not known (this
/// reads Linux's files).
///
/// `QCHAT_MEMORY` (bytes) is what to assume is free instead.
pub fn available() -> Option<u64> {
    let assumed = crate::paths::non_empty("QCHAT_MEMORY").and_then(|bytes| bytes.trim().parse().ok());
    assumed.or_else(|| available_below(Path::new("/")))
}

/// The same with the system's files below `root`.
fn available_below(root: &Path) -> Option<u64> {
    let kernel = named_number(&root.join("proc/meminfo"), "MemAvailable:")?.saturating_mul(1024);
    let groups = read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    Some(groups.lines().filter_map(|line| free_in_group(root, line)).fold(kernel, u64::min))
}

/// What the limits of one control group and of those around it leave. `line` is one of /proc/self/cgroup:
/// `0::/path` for version 2, `4:memory:/path` for version 1.
fn free_in_group(root: &Path, line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let (mount, group) = match controllers {
        "" => ("sys/fs/cgroup", &V2),
        _ if controllers.split(',').any(|name| name == "memory") => ("sys/fs/cgroup/memory", &V1),
        _ => return None,
    };
    let mount = root.join(mount);
    // In a container the path may be that of the host, which is not there: then the mount itself is the group.
    let own = mount.join(path.trim_start_matches('/'));
    let around = own.ancestors().take_while(|folder| folder.starts_with(&mount));
    around.filter_map(|folder| group.free(folder)).min()
}

/// The files of a control group.
struct Group {
    limit: &'static str,
    used: &'static str,
    /// Of `memory.stat`: cached files, which make room when it is wanted.
    cached: [&'static str; 2],
}

const V1: Group = Group {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: ["total_inactive_file", "total_active_file"],
};
const V2: Group = Group { limit: "memory.max", used: "memory.current", cached: ["inactive_file", "active_file"] };

impl Group {
    /// None where the folder states no limit (version 2 says "max").
    fn free(&self, folder: &Path) -> Option<u64> {
        let number = |file: &str| read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
        let (limit, used) = (number(self.limit)?, number(self.used)?);
        let cached = self.cached.into_iter().filter_map(|name| named_number(&folder.join("memory.stat"), name));
        Some(limit.saturating_sub(used.saturating_sub(cached.sum())))
    }
}

/// The number behind a name, in a file of `name number` lines.
fn named_number(file: &Path, name: &str) -> Option<u64> {
    let text = read_to_string(file).ok()?;
    let words = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok()).flatten()
    };
    text.lines().find_map(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        available_below(root.path())
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:  900 kB\nMemFree: 1 kB\nMemAvailable:     600 kB\n");

    #[test]
    fn without_limits_it_is_what_the_kernel_says() {
        assert_eq!(system(&[]), None);
        assert_eq!(system(&[MEMINFO]), Some(600 * 1024));
        assert_eq!(
            system(&[MEMINFO, ("proc/self/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/memory.max", "max\n")]),
            Some(600 * 1024)
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn it_is_known_here() {
        assert!(available_below(Path::new("/")).is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn the_tightest_of_the_groups_around_counts() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "500000\n"),
            ("sys/fs/cgroup/a/b/memory.current", "100000\n"),
            ("sys/fs/cgroup/a/memory.max", "400000\n"),
            ("sys/fs/cgroup/a/memory.current", "300000\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 20000\nactive_file 30000\n"),
        ];
        assert_eq!(system(&files), Some(400_000 - (300_000 - 50_000)));
        assert_eq!(system(&files[..4]), Some(400_000));
    }

    #[test]
    fn the_first_version_is_understood_and_a_container_without_its_path() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "300000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "200000\n"),
            (
                "sys/fs/cgroup/memory/memory.stat",
                "inactive_file 1\ntotal_inactive_file 50000\ntotal_active_file 10000\n",
            ),
        ];
        assert_eq!(system(&files), Some(160_000));
        // Version 1 states a number nobody reaches for no limit.
        let unlimited =
            [files[0], files[1], ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"), files[3]];
        assert_eq!(system(&unlimited), Some(600 * 1024));
    }
}
