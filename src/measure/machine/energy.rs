//! What the processors draw, by Intel's counters (RAPL), which AMD's processors have too. The memory and the graphics
//! card beside them are not in it.

use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

const ZONES: &str = "sys/class/powercap";

/// Counts from its start on, all packages together and whatever runs on them.
#[derive(Debug)]
pub struct Meter {
    packages: Vec<Package>,
}

#[derive(Debug)]
struct Package {
    folder: PathBuf,
    at_start: u64,
}

impl Meter {
    /// None where there is no counter or it may not be read (since 2020 Linux lets only root). One package of several
    /// that is unreadable is reason enough: part of a sum would pass for all of it.
    pub fn start() -> Option<Self> {
        Self::start_below(Path::new("/"))
    }

    /// The same with the system's files below `root`.
    fn start_below(root: &Path) -> Option<Self> {
        let zones = read_dir(root.join(ZONES)).ok()?.flatten().map(|entry| entry.path());
        let packages = zones.filter(|folder| is_package(folder));
        let packages: Option<Vec<_>> =
            packages.map(|folder| number(&folder, "energy_uj").map(|at_start| Package { folder, at_start })).collect();
        packages.filter(|packages| !packages.is_empty()).map(|packages| Self { packages })
    }

    /// Since the start. A counter that wraps around is seen to do so once: most do within an hour under load.
    pub fn joules(&self) -> Option<f64> {
        let microjoules: Option<u64> = self.packages.iter().map(Package::microjoules).sum();
        microjoules.map(|sum| sum as f64 / 1e6)
    }
}

impl Package {
    fn microjoules(&self) -> Option<u64> {
        let now = number(&self.folder, "energy_uj")?;
        if now >= self.at_start {
            return Some(now - self.at_start);
        }
        let before_it_wrapped = number(&self.folder, "max_energy_range_uj")?.checked_sub(self.at_start)?;
        before_it_wrapped.checked_add(now)
    }
}

/// Whether a zone is a whole processor: `intel-rapl:0` is named `package-0`, while `intel-rapl:0:1` is a part of it and
/// a zone named `psys` is the platform with the packages in it. `intel-rapl-mmio:0` is the same package once more.
fn is_package(zone: &Path) -> bool {
    let id = zone.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("intel-rapl:"));
    let is_top_level = id.is_some_and(|id| !id.contains(':'));
    is_top_level && read_to_string(zone.join("name")).is_ok_and(|name| name.starts_with("package"))
}

fn number(zone: &Path, file: &str) -> Option<u64> {
    read_to_string(zone.join(file)).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::system;
    use super::*;

    const RANGE: &str = "262143328850\n";

    /// Zones as (id, name, microjoules).
    fn zones(zones: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let root = system(&[]);
        for (id, name, energy) in zones {
            let folder = root.path().join(ZONES).join(id);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("name"), format!("{name}\n")).unwrap();
            std::fs::write(folder.join("max_energy_range_uj"), RANGE).unwrap();
            std::fs::write(folder.join("energy_uj"), energy).unwrap();
        }
        root
    }

    fn set(root: &tempfile::TempDir, id: &str, energy: &str) {
        std::fs::write(root.path().join(ZONES).join(id).join("energy_uj"), energy).unwrap();
    }

    fn joules_are(meter: &Meter, expected: f64) -> bool {
        meter.joules().is_some_and(|joules| (joules - expected).abs() < 1e-9)
    }

    #[test]
    fn whole_packages_add_up_and_their_parts_do_not_count() {
        let root = zones(&[
            ("intel-rapl", "", "77"),
            ("intel-rapl:0", "package-0", "1000000\n"),
            ("intel-rapl:0:0", "core", "10\n"),
            ("intel-rapl:1", "package-1-die-0", "5000000\n"),
            ("intel-rapl:2", "psys", "1\n"),
            ("intel-rapl-mmio:0", "package-0", "1000000\n"),
        ]);
        let meter = Meter::start_below(root.path()).unwrap();
        assert!(joules_are(&meter, 0.0));
        for id in ["intel-rapl:0", "intel-rapl:0:0", "intel-rapl:2", "intel-rapl-mmio:0"] {
            set(&root, id, "3500000\n");
        }
        set(&root, "intel-rapl:1", "5250000\n");
        assert!(joules_are(&meter, 2.75));
    }

    #[test]
    fn a_counter_that_wrapped_around_counts_on() {
        let root = zones(&[("intel-rapl:0", "package-0", "262143000000\n")]);
        let meter = Meter::start_below(root.path()).unwrap();
        set(&root, "intel-rapl:0", "671150\n");
        assert!(joules_are(&meter, 1.0));
        std::fs::remove_file(root.path().join(ZONES).join("intel-rapl:0/max_energy_range_uj")).unwrap();
        assert_eq!(meter.joules(), None);
    }

    #[test]
    fn without_counters_or_the_right_to_read_them_there_is_no_meter() {
        assert!(Meter::start_below(system(&[]).path()).is_none());
        assert!(Meter::start_below(zones(&[("intel-rapl:0", "psys", "1\n")]).path()).is_none());
        let root = zones(&[("intel-rapl:0", "package-0", "1\n"), ("intel-rapl:1", "package-1", "1\n")]);
        let meter = Meter::start_below(root.path()).unwrap();
        // A folder in the file's place: nobody may read it, not even root.
        let file = root.path().join(ZONES).join("intel-rapl:1/energy_uj");
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        assert_eq!(meter.joules(), None);
        assert!(Meter::start_below(root.path()).is_none());
    }
}
