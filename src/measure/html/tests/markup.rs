//! A strict reader of what the page is made of: every tag closed in its order, every attribute quoted.

pub(super) struct Tag<'a> {
    pub(super) name: &'a str,
    pub(super) attributes: Vec<(&'a str, &'a str)>,
    /// Names of the elements around it, the outermost first.
    pub(super) inside: Vec<&'a str>,
    /// What stands between this tag and the next one.
    pub(super) text: &'a str,
}

impl Tag<'_> {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|attribute| attribute.0 == name).map(|attribute| attribute.1)
    }
}

const VOID: [&str; 3] = ["meta", "link", "br"];
const RAW: [&str; 2] = ["script", "style"];

/// All opening tags in their order.
pub(super) fn tags(page: &str) -> Vec<Tag<'_>> {
    let mut rest = page.strip_prefix("<!DOCTYPE html>\n").expect("a document type");
    let (mut tags, mut open): (Vec<Tag>, Vec<&str>) = (Vec::new(), Vec::new());
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains('>'), "a > in text: {:?}", &rest[..at]);
        rest = &rest[at + 1..];
        if let Some(closing) = rest.strip_prefix('/') {
            let (name, after) = closing.split_once('>').unwrap();
            assert_eq!(open.pop(), Some(name), "closed out of order before {after:.80}");
            rest = after;
            continue;
        }
        let (tag, after) = tag(rest, &open);
        rest = after;
        if RAW.contains(&tag.name) {
            let end = rest.find(&format!("</{}", tag.name)).unwrap();
            tags.push(Tag { text: &rest[..end], ..tag });
            rest = rest[end..].split_once('>').unwrap().1;
            continue;
        }
        if !tag.name.ends_with('/') && !VOID.contains(&tag.name) && !tag.attributes.iter().any(|a| a.0 == "/") {
            open.push(tag.name);
        }
        tags.push(tag);
    }
    assert_eq!(open, Vec::<&str>::new(), "left open");
    tags
}

fn tag<'a>(text: &'a str, open: &[&'a str]) -> (Tag<'a>, &'a str) {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap();
    let (name, mut rest) = text.split_at(end);
    assert!(!name.is_empty(), "no tag: <{text:.40}");
    let mut attributes = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('>') {
            let text = &after[..after.find('<').unwrap_or(after.len())];
            return (Tag { name, attributes, inside: open.to_vec(), text }, after);
        }
        if let Some(after) = rest.strip_prefix('/') {
            attributes.push(("/", ""));
            rest = after;
            continue;
        }
        let (attribute, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("unquoted: {rest:.40}"));
        assert!(attribute.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{attribute:.60}");
        let (value, after) = after.split_once('"').unwrap();
        assert!(!value.contains('<'), "{value:.60}");
        attributes.push((attribute, value));
        rest = after;
    }
}
