//! `qchat completions`: scripts for shells, and the man page.

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::cli::{Cli, CompletionsArgs, Shell};
use crate::error::{Error, Result};
use crate::ui::output;

pub(super) fn run(args: &CompletionsArgs) -> Result<ExitCode> {
    let mut command = Cli::command();
    let mut out = Vec::new();
    match args.shell {
        Shell::Man => clap_mangen::Man::new(command)
            .render(&mut out)
            .map_err(|error| Error::failed(format!("the man page cannot be written: {error}")))?,
        Shell::Bash => clap_complete::generate(clap_complete::Shell::Bash, &mut command, "qchat", &mut out),
        Shell::Zsh => clap_complete::generate(clap_complete::Shell::Zsh, &mut command, "qchat", &mut out),
        Shell::Fish => clap_complete::generate(clap_complete::Shell::Fish, &mut command, "qchat", &mut out),
        Shell::Elvish => clap_complete::generate(clap_complete::Shell::Elvish, &mut command, "qchat", &mut out),
        Shell::Powershell => clap_complete::generate(clap_complete::Shell::PowerShell, &mut command, "qchat", &mut out),
    }
    output::print(&String::from_utf8_lossy(&out))?;
    Ok(ExitCode::SUCCESS)
}
