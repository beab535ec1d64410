use super::*;
use crate::measure::stats::{High, Summary};
use markup::tags;

mod markup;
mod samples;
mod scale;

fn headings(report: &Report) -> Vec<String> {
    let page = page(report);
    tags(&page).iter().filter(|tag| tag.name == "h2").map(|tag| tag.text.to_owned()).collect()
}

fn json(page: &str) -> serde_json::Value {
    let tags = tags(page);
    let script = tags.iter().find(|tag| tag.get("id") == Some("report")).unwrap();
    serde_json::from_str(script.text).unwrap()
}

/// Pages for a look: `QCHAT_PAGES=folder cargo test html`.
#[test]
fn pages_are_written_where_they_are_asked_for() {
    let Some(folder) = std::env::var_os("QCHAT_PAGES").map(std::path::PathBuf::from) else { return };
    for (name, report) in samples::all() {
        std::fs::write(folder.join(name).with_extension("html"), page(&report)).unwrap();
    }
}

#[test]
fn the_page_loads_nothing_and_runs_nothing() {
    for (name, report) in samples::all() {
        let page = page(&report);
        for tag in tags(&page) {
            let known = ["html", "head", "meta", "link", "title", "style", "body", "main", "header", "section"];
            let more =
                ["h1", "h2", "h3", "p", "ul", "li", "dl", "dt", "dd", "div", "span", "strong", "bdi", "br", "code"];
            let table = ["table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary"];
            let plots =
                ["figure", "figcaption", "svg", "desc", "defs", "path", "use", "line", "rect", "circle", "text", "g"];
            let all = [&known[..], &more, &table, &plots, &["script"]].concat();
            assert!(all.contains(&tag.name), "{name}: {}", tag.name);
            assert!(tag.attributes.iter().all(|a| !a.0.starts_with("on") && a.0 != "src" && a.0 != "style"), "{name}");
            assert!(tag.get("href").is_none_or(|to| to.starts_with('#') || to == "data:,"), "{name}");
            assert!(tag.name != "script" || tag.get("type") == Some("application/json"), "{name}");
        }
        assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
    }
}

#[test]
fn hostile_names_are_text() {
    let page = page(&samples::hostile());
    let tags = tags(&page);
    assert_eq!(tags.iter().filter(|tag| tag.name == "script").count(), 1);
    assert!(tags.iter().any(|tag| tag.text.contains("&lt;script&gt;alert(1)")));
    assert!(page.contains("&quot; onmouseover=&quot;alert(3)&#39; ␛[31mred␀ \u{fffd}gnp.exe"));
    assert!(page.chars().all(|c| c == '\n' || !c.is_control()));
    assert!(!page.contains(['\u{202e}', '\u{200f}', '\u{ffff}']));
}

#[test]
fn text_is_escaped() {
    assert_eq!(text::escape("a<b>&\"c'"), "a&lt;b&gt;&amp;&quot;c&#39;");
    assert_eq!(text::escape("1\n2\t3\r4"), "1 2 3 4");
    assert_eq!(
        text::escape("\u{7}\u{7f}\u{85}\u{2066}\u{fdd0}\u{1fffe}é字🙂"),
        "␇\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}é字🙂"
    );
    let long = "字".repeat(500);
    assert_eq!(text::short(&long).chars().count(), 121);
    let strange = serde_json::json!({ "a</script>": "<!-- & \u{2028}\u{7f}\u{10ffff}\u{1f642}\"\\\n" });
    let escaped = text::escape_json(&strange.to_string());
    assert!(!escaped.contains(['<', '>', '&', '\u{2028}', '\u{10ffff}']));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), strange);
}

#[test]
fn the_report_can_be_read_back() {
    for (name, report) in samples::all() {
        let written = serde_json::to_string(&report).unwrap();
        assert_eq!(json(&page(&report)), serde_json::from_str::<serde_json::Value>(&written).unwrap(), "{name}");
    }
}

#[test]
fn no_place_is_without_a_number() {
    let places = ["x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height", "d"];
    for (name, report) in samples::all() {
        let page = page(&report);
        for tag in tags(&page).iter().filter(|tag| tag.inside.contains(&"svg") || tag.name == "svg") {
            for (_, value) in tag.attributes.iter().filter(|attribute| places.contains(&attribute.0)) {
                let numbers = value.split(|c: char| c.is_ascii_whitespace() || "MLHVahvlz%".contains(c));
                for number in numbers.filter(|number| !number.is_empty()) {
                    let number: f64 = number.parse().unwrap_or_else(|_| panic!("{name}: {} {value}", tag.name));
                    assert!(number.abs() <= 1000.0, "{name}: {value}");
                }
            }
        }
    }
}

#[test]
fn tables_and_plots_can_be_read_aloud() {
    for (name, report) in samples::all() {
        let page = page(&report);
        let tags = tags(&page);
        for (at, tag) in tags.iter().enumerate() {
            match tag.name {
                "th" => assert!(matches!(tag.get("scope"), Some("row" | "col")), "{name}"),
                "table" => assert_eq!(tags[at + 1].name, "caption", "{name}"),
                "svg" if tag.get("aria-hidden").is_some() || tag.inside.contains(&"svg") => {}
                "svg" => {
                    assert_eq!(tag.get("role"), Some("img"), "{name}");
                    assert!(tags[at + 1].name == "title", "{name}");
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_section_is_there_where_it_has_something() {
    let [figures, kinds, spread, measured] =
        ["Figures", "By kind of prompt", "How times spread", "How it was measured"];
    let [beside, depth, drafts] = ["Beside ", "By depth", "Drafts"];
    assert_eq!(headings(&samples::one_arm()), [figures, kinds, spread, measured]);
    assert_eq!(headings(&samples::five_drafts()), [figures, beside, kinds, spread, depth, drafts, measured]);
    let quality = ["Speed beside quality", "Quality"];
    let models = [&[figures, beside, kinds, spread, depth][..], &quality, &[measured]].concat();
    assert_eq!(headings(&samples::two_models()), models);
    assert_eq!(headings(&samples::nothing()), [figures, measured]);
    let mut empty = samples::nothing();
    empty.arms.clear();
    assert_eq!(headings(&empty), [measured]);
    assert!(page(&empty).contains("Nothing was measured."));
}

#[test]
fn a_stop_is_said() {
    assert!(page(&samples::nothing()).contains("Stopped early."));
    assert!(!page(&samples::one_arm()).contains("Stopped early."));
}

#[test]
fn the_slow_end_is_named_for_what_it_is() {
    let names = |report: &Report| {
        let page = page(report);
        let heads: Vec<String> = tags(&page).iter().filter(|tag| tag.name == "th").map(|t| t.text.to_owned()).collect();
        heads.into_iter().filter(|head| head.starts_with("TTFT ")).nth(1).unwrap()
    };
    assert_eq!(names(&samples::five_drafts()), "TTFT max, ms");
    assert_eq!(names(&samples::one_arm()), "TTFT p95, ms");
    let mut mixed = samples::five_drafts();
    mixed.arms[1].ttft_ms = Some(Summary { high: High::P95(777.0), ..Summary::of(&[1.0]).unwrap() });
    assert_eq!(names(&mixed), "TTFT p95 or max, ms");
    assert!(page(&mixed).contains("p95 777<"));
}

#[test]
fn verdicts_and_intervals_are_in_words() {
    let report = samples::five_drafts();
    let ratio = &report.arms[1].ratios[0];
    let page = page(&report);
    let (low, high) = (ratio.ratio.low.unwrap(), ratio.ratio.high.unwrap());
    assert!(page.contains(&format!("<strong>{:.2}</strong> ({low:.2} to {high:.2})", ratio.ratio.ratio)));
    assert!(page.contains("<strong>faster</strong>") && page.contains("no difference shown"));
}

#[test]
fn arms_of_one_colour_have_other_shapes() {
    let report = samples::many_arms();
    let arms = Arms::of(&report);
    let marks: Vec<String> = arms.iter().map(|arm| arm.mark("0", "0", "", "")).collect();
    let different: std::collections::HashSet<&String> = marks.iter().collect();
    assert_eq!(different.len(), 12);
}

/// As WCAG 2.2 counts it: 4.5 for text, 3 for marks.
#[test]
fn colours_stand_out_in_light_and_dark() {
    for theme in STYLE.split("--bg:").skip(1) {
        let theme = format!("--bg:{}", theme.split('}').next().unwrap());
        let colour = |name: &str| {
            let value = theme.split(&format!("{name}: #")).nth(1).unwrap().split(';').next().unwrap();
            let long = if value.len() == 3 { value.chars().flat_map(|c| [c, c]).collect() } else { value.to_owned() };
            luminance(&long)
        };
        let contrast = |a: f64, b: f64| (a.max(b) + 0.05) / (a.min(b) + 0.05);
        let ground = colour("--bg");
        assert!(contrast(colour("--fg"), ground) >= 7.0 && contrast(colour("--fg"), colour("--notice")) >= 7.0);
        assert!(contrast(colour("--muted"), ground) >= 4.5);
        for arm in 0..8 {
            assert!(contrast(colour(&format!("--a{arm}")), ground) >= 3.0, "{arm} on {ground}");
        }
    }
}

fn luminance(hex: &str) -> f64 {
    let part = |at: usize| {
        let c = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
        if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * part(0) + 0.7152 * part(2) + 0.0722 * part(4)
}

/// Where there is one: `apt-get install chromium-headless-shell`.
#[test]
fn a_browser_shows_it_without_a_complaint() {
    let folder = std::env::temp_dir().join(format!("qchat-html-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (name, report) in samples::all() {
        let (file, picture) = (folder.join(name).with_extension("html"), folder.join(name).with_extension("png"));
        std::fs::write(&file, page(&report)).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/screenshot");
        let output = std::process::Command::new(script).args([&file, &picture]).args(["dark", "390"]).output();
        let Ok(output) = output.as_ref().map(|output| (output.status.code(), String::from_utf8_lossy(&output.stderr)))
        else {
            break;
        };
        if output.0 == Some(77) {
            break;
        }
        assert_eq!(output, (Some(0), "".into()), "{name}");
        assert!(std::fs::read(&picture).unwrap().starts_with(b"\x89PNG"));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
