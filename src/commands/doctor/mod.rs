//! `qchat doctor`: this machine, this build, and which part of it holds a model back.

mod model;
mod tune;

use std::process::ExitCode;

use serde_json::json;

use super::sheet::Sheet;
use crate::cli::DoctorArgs;
use crate::engine::llama::{self, route_logs};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::measure::machine::cores::Cores;
use crate::measure::machine::{bandwidth, disk, features};
use crate::models::{self, Resolver};
use crate::paths::Paths;
use crate::settings::physical_cores;
use crate::ui::output::{Terminal, count, size};

pub(super) fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let terminal = Terminal::new(&args.ui);
    let interrupt = Interrupt::on_ctrl_c()?;
    route_logs(super::run::log_target(&args.ui)?);
    let resolver = Resolver::new(Paths::from_env()?)?;
    // An unknown name is said before anything is measured.
    let target = args.model.as_ref().map(|name| resolver.target(name)).transpose()?;
    let threads = args.threads.map_or_else(physical_cores, |count| count as usize);
    let mut doctor = Doctor { args, terminal, interrupt, resolver, threads, sheet: Sheet::default() };
    doctor.build();
    let bandwidth = doctor.machine();
    if doctor.interrupt.is_set() {
        return Err(Error::interrupted());
    }
    if let Some(target) = target {
        doctor.model(&target, bandwidth)?;
    }
    doctor.sheet.print(&terminal, args.output)?;
    Ok(ExitCode::SUCCESS)
}

struct Doctor<'a> {
    args: &'a DoctorArgs,
    terminal: Terminal,
    interrupt: Interrupt,
    resolver: Resolver,
    threads: usize,
    sheet: Sheet,
}

impl Doctor<'_> {
    fn build(&mut self) {
        let line = llama::features();
        let features = features::compare(&line);
        let devices = llama::devices();
        let sheet = &mut self.sheet;
        sheet.heading("Build");
        sheet.line("qchat", &format!("{}, {}", env!("CARGO_PKG_VERSION"), llama::build()));
        for device in &devices {
            // Of a CPU the machine's memory is stated below.
            let memory = format!(", {} of {} free", size(device.free_bytes), size(device.total_bytes));
            let memory = if device.is_gpu { memory } else { String::new() };
            sheet.line("device", &format!("{}: {}{memory}", device.name, device.description));
        }
        let used: Vec<&str> = features.iter().filter(|own| own.compiled).map(|own| own.name).collect();
        sheet.line("CPU features", &if used.is_empty() { "none that matter".into() } else { used.join(", ") });
        let remarks = features::remarks(&features);
        for remark in &remarks {
            sheet.line("", remark);
        }
        sheet.put(
            "build",
            json!({
                "version": env!("CARGO_PKG_VERSION"), "engine": llama::build(), "system_info": line,
                "devices": devices, "features": features, "remarks": remarks,
            }),
        );
    }

    /// Answers the read bandwidth, in bytes a second.
    fn machine(&mut self) -> Option<f64> {
        let cores = Cores::here();
        let free = models::available();
        let bandwidth = bandwidth::measure(self.threads, cores.last_level_cache, free);
        let _ = std::fs::create_dir_all(&self.resolver.paths.cache);
        let disk = disk::measure(&self.resolver.paths.cache);
        let sheet = &mut self.sheet;
        sheet.heading("Machine");
        let model = cores.model.as_deref().unwrap_or("unknown");
        sheet.line("CPU", &format!("{model}, {}, {} logical", count(cores.physical, "core"), cores.logical));
        let total = cores.memory.map_or_else(|| "unknown".into(), size);
        sheet.line("memory", &format!("{total}, {} free", free.map_or_else(|| "unknown".into(), size)));
        let cache =
            cores.last_level_cache.map_or_else(String::new, |bytes| format!(", last-level cache {}", size(bytes)));
        let words = match &bandwidth {
            Ok(own) => {
                let past = if own.past_cache { "" } else { "; partly from the cache" };
                let threads = count(own.threads, "thread");
                format!("{:.1} GB/s with {threads} (median {:.1}{past}){cache}", own.best / 1e9, own.median / 1e9)
            }
            Err(why) => format!("not measured: {why}"),
        };
        sheet.line("reads memory", &words);
        let words = match &disk {
            Ok(own) => format!(
                "reads {:.1} GB/s {}, writes {:.1} GB/s ({})",
                own.read / 1e9,
                own.source.words(),
                own.write / 1e9,
                self.resolver.paths.cache.display()
            ),
            Err(why) => format!("not measured: {why}"),
        };
        sheet.line("cache folder", &words);
        let bandwidth_json = bandwidth.as_ref().map_or_else(|why| json!({ "error": why }), |own| json!(own));
        let disk_json = disk.as_ref().map_or_else(|why| json!({ "error": why }), |own| json!(own));
        sheet.put(
            "machine",
            json!({ "cores": cores, "available_bytes": free, "bandwidth": bandwidth_json, "disk": disk_json }),
        );
        bandwidth.ok().map(|own| own.best)
    }
}
