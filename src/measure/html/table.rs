//! Tables: a header for each column and row, in a box that scrolls by itself where the window is narrow.

/// A column: its header as HTML, and whether it has figures.
pub(super) enum Column<'a> {
    Words(&'a str),
    Figures(&'a str),
}

const LONG: usize = 14;

/// A table of rows of HTML. Cells that are empty show a dash; a column of nothing but those is left out.
pub(super) fn table(caption: &str, columns: &[Column], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let used =
        |column: usize| column == 0 || rows.iter().any(|row| row.get(column).is_some_and(|cell| !cell.is_empty()));
    let columns: Vec<(usize, &Column)> = columns.iter().enumerate().filter(|(column, _)| used(*column)).collect();
    let heads: String = columns.iter().map(|(_, column)| head(column)).collect();
    // Long names need some width even where all columns compete for it.
    let long = rows.iter().filter_map(|row| row.first()).any(|cell| without_tags(cell).chars().count() > LONG);
    let class = if long { " class=\"long\"" } else { "" };
    let body: String = rows.iter().map(|row| line(row, &columns)).collect();
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{label}\">\n<table{class}>\n\
         <caption><span>{caption}</span></caption>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n</div>\n",
        label = without_tags(caption),
    )
}

fn head(column: &Column) -> String {
    match column {
        Column::Words(name) => format!("<th scope=\"col\">{name}</th>"),
        Column::Figures(name) => format!("<th scope=\"col\" class=\"n\">{name}</th>"),
    }
}

fn line(row: &[String], columns: &[(usize, &Column)]) -> String {
    let cells = columns.iter().map(|(at, column)| {
        let cell = row.get(*at).filter(|cell| !cell.is_empty()).map_or("–", String::as_str);
        match (at, column) {
            (0, _) => format!("<th scope=\"row\">{cell}</th>"),
            (_, Column::Words(_)) => format!("<td>{cell}</td>"),
            (_, Column::Figures(_)) => format!("<td class=\"n\">{cell}</td>"),
        }
    });
    format!("<tr>{}</tr>\n", cells.collect::<String>())
}

/// HTML of this module's callers, as an attribute's text. Escaped text has no `<` of its own.
pub(super) fn without_tags(html: &str) -> String {
    let mut out = String::new();
    for part in html.split('<') {
        out.push_str(part.split_once('>').map_or(part, |(_, text)| text));
    }
    out
}

/// What is there to read for those who want it, closed at first.
pub(super) fn folded(summary: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    format!("<details>\n<summary>{summary}</summary>\n{content}</details>\n")
}
