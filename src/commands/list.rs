//! `qchat list`: models on this disk, and models that can be pulled.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::free_memory;
use crate::cli::{ListArgs, ListFormat};
use crate::error::Result;
use crate::models::{Resolver, Source};
use crate::paths::Paths;
use crate::ui::output::{self, Terminal};

/// What a model takes beside its weights, about: a small context, buffers, the program.
const BESIDE: u64 = 500_000_000;
/// A name that is longer widens no column, and what a size and a place take beside it.
const LONGEST: usize = 32;
const SIZE_AND_PLACE: usize = 2 + "10.00 GB".len() + 2 + "LM Studio".len();

pub(super) fn run(args: &ListArgs) -> Result<ExitCode> {
    let terminal = Terminal::new(&args.ui);
    let resolver = Resolver::new(Paths::from_env()?)?;
    let free = free_memory();
    let mut rows = Vec::new();
    let installed = resolver.installed();
    for entry in resolver.registry.entries() {
        let here = installed.iter().find(|installed| installed.entry.name == entry.name);
        let source = entry.sources.first();
        let bytes = here.map_or_else(|| source.map_or(0, Source::bytes), |here| here.bytes);
        let quant = here.and_then(|here| here.quant.clone()).or_else(|| source.and_then(|source| source.quant.clone()));
        rows.push(json!({
            "name": entry.name,
            "bytes": (bytes > 0).then_some(bytes),
            "quantisation": quant,
            "where": if here.is_some() { "here" } else { "available" },
            "file": here.map(|here| &here.file),
            "fits": fits(bytes, free),
            "draft": entry.draft,
        }));
    }
    for own in resolver.elsewhere() {
        rows.push(json!({
            "name": own.name,
            "bytes": own.bytes,
            "quantisation": null,
            "where": own.owner.unwrap_or("here"),
            "file": own.file,
            "fits": fits(own.bytes, free),
            "draft": null,
        }));
    }
    // What is here first.
    rows.sort_by_key(|row| row["where"] == "available");
    match args.output {
        ListFormat::Json => output::print_json(&json!(rows))?,
        ListFormat::Text => {
            terminal.detail("name, size, where it is and whether memory holds it, quantisation, its draft");
            let rows: Vec<Cells> = rows.iter().map(cells).collect();
            output::print_clean(&terminal, &table(&rows, terminal.size().map(|(columns, _)| columns)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether memory holds a model now; not known where its size or the memory is not.
fn fits(bytes: u64, free: Option<u64>) -> Option<bool> {
    free.filter(|_| bytes > 0).map(|free| bytes + bytes / 20 + BESIDE <= free)
}

/// Name, size, where it is and whether it is too large, quantisation, draft.
type Cells = [String; 5];

fn cells(row: &Value) -> Cells {
    let text = |key: &str| row[key].as_str().unwrap_or_default();
    let place = Some(text("where")).filter(|place| *place != "available");
    let fits = (row["fits"] == false).then_some("too large");
    let place = place.into_iter().chain(fits).collect::<Vec<_>>().join(", ");
    let size = row["bytes"].as_u64().map_or_else(|| "?".into(), output::size);
    [text("name").to_owned(), size, place, text("quantisation").to_owned(), text("draft").to_owned()]
}

/// Rows under each other. In a terminal of so many columns none is broken: a long name, which somebody may want to copy,
/// has a line of its own, and cells without room are left out, the least important first.
fn table(rows: &[Cells], columns: Option<usize>) -> String {
    let longest = columns.map_or(LONGEST, |columns| columns.saturating_sub(SIZE_AND_PLACE).min(LONGEST));
    let widths = [0, 1, 2, 3, 4].map(|at| {
        let widths = rows.iter().map(|row| row[at].chars().count());
        widths.filter(|width| at > 0 || *width <= longest).max().unwrap_or(0)
    });
    let mut out = String::new();
    for row in rows {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        if columns.is_some() && row[0].chars().count() > widths[0] {
            let _ = writeln!(out, "{}", row[0]);
            line = " ".repeat(widths[0]);
        }
        for at in 1..row.len() {
            // Sizes end under each other, everything else begins so.
            let cell =
                if at == 1 { format!("{:>1$}", row[at], widths[at]) } else { format!("{:<1$}", row[at], widths[at]) };
            if columns.is_some_and(|columns| line.chars().count() + 2 + cell.trim_end().chars().count() > columns) {
                break;
            }
            line += "  ";
            line += &cell;
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_fits_its_terminal() {
        let long = "x".repeat(LONGEST + 1);
        let row = |cells: [&str; 5]| cells.map(str::to_owned);
        let rows = [row(["a", "1.0 MB", "here", "Q8_0", "b"]), row([&long, "10 MB", "Ollama", "", ""])];
        assert_eq!(table(&rows, None), format!("a  1.0 MB  here    Q8_0  b\n{long}   10 MB  Ollama\n"));
        assert_eq!(table(&rows, Some(80)), format!("a  1.0 MB  here    Q8_0  b\n{long}\n    10 MB  Ollama\n"));
        assert_eq!(table(&rows, Some(22)), format!("a  1.0 MB  here\n{long}\n    10 MB  Ollama\n"));
        assert_eq!(table(&rows, Some(12)), format!("a\n  1.0 MB\n{long}\n   10 MB\n"));
    }
}
