//! `qchat completions`: scripts for shells, and the man page.

use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_mangen::Man;

use crate::cli::{Cli, CompletionsArgs, Shell};
use crate::error::{Error, Result};
use crate::ui::output;

pub(super) fn run(args: &CompletionsArgs) -> Result<ExitCode> {
    let mut command = Cli::command();
    let mut out = Vec::new();
    match args.shell {
        Shell::Man => {
            let page =
                man(command).map_err(|error| Error::failed(format!("the man page cannot be written: {error}")))?;
            out = page.into_bytes();
        }
        Shell::Bash => clap_complete::generate(clap_complete::Shell::Bash, &mut command, "qchat", &mut out),
        Shell::Zsh => clap_complete::generate(clap_complete::Shell::Zsh, &mut command, "qchat", &mut out),
        Shell::Fish => clap_complete::generate(clap_complete::Shell::Fish, &mut command, "qchat", &mut out),
        Shell::Elvish => clap_complete::generate(clap_complete::Shell::Elvish, &mut command, "qchat", &mut out),
        Shell::Powershell => clap_complete::generate(clap_complete::Shell::PowerShell, &mut command, "qchat", &mut out),
    }
    output::print(&String::from_utf8_lossy(&out))?;
    Ok(ExitCode::SUCCESS)
}

/// One page with every command in it: clap's would refer to a page for each, which nobody has installed.
fn man(mut command: clap::Command) -> io::Result<String> {
    command.build();
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    let mut page = String::from_utf8_lossy(&page).into_owned();
    let mut all: Vec<&clap::Command> = command.get_subcommands().collect();
    while let Some(next) = (!all.is_empty()).then(|| all.remove(0)) {
        let (name, words) = (next.get_display_name().unwrap_or_default(), next.get_bin_name().unwrap_or_default());
        page = page.replace(&format!("{}(1)", name.replace('-', "\\-")), words);
        let (man, mut own) = (Man::new(next.clone()), Vec::new());
        man.render_description_section(&mut own)?;
        man.render_synopsis_section(&mut own)?;
        man.render_options_section(&mut own)?;
        // Its sections are parts of one here.
        let own = String::from_utf8_lossy(&own).replace(".SH ", ".SS ");
        let _ = write!(page, ".SH \"{}\"\n{own}", words.to_uppercase());
        all.splice(0..0, next.get_subcommands());
    }
    Ok(page)
}
