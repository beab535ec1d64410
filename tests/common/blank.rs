//! GGUF files that say what a test wants said and hold nothing: their tensors are a hole in the file, of any size.

use std::{fs, io, io::Write as _, path::Path};

use super::tiny::{array_key, header_claiming, key, string, string_key};

/// GGUF's numbers of tensor types.
pub const F32: u32 = 0;
pub const F16: u32 = 1;
pub const Q8_0: u32 = 8;
pub const Q4_K: u32 = 12;
pub const Q6_K: u32 = 14;

const ALIGNMENT: u64 = 32;

/// A tensor: name, shape, type, bytes.
pub type Described = (String, Vec<u64>, u32, u64);

#[derive(Clone, Debug, Default)]
pub struct Blank {
    keys: Vec<Vec<u8>>,
    tensors: Vec<Described>,
}

impl Blank {
    pub fn new(architecture: &str) -> Self {
        Self { keys: vec![string_key("general.architecture", architecture)], tensors: Vec::new() }
    }

    pub fn text(mut self, name: &str, value: &str) -> Self {
        self.keys.push(string_key(name, value));
        self
    }

    pub fn number(mut self, name: &str, value: u32) -> Self {
        self.keys.push(key(name, 4, &value.to_le_bytes()));
        self
    }

    pub fn texts(mut self, name: &str, values: &[&str]) -> Self {
        self.keys.push(array_key(name, 8, &values.iter().map(|value| string(value)).collect::<Vec<_>>()));
        self
    }

    pub fn numbers(mut self, name: &str, values: &[u32]) -> Self {
        self.keys.push(array_key(
            name,
            4,
            &values.iter().map(|value| value.to_le_bytes().to_vec()).collect::<Vec<_>>(),
        ));
        self
    }

    pub fn tensor(mut self, name: &str, shape: &[u64], kind: u32, bytes: u64) -> Self {
        self.tensors.push((name.to_owned(), shape.to_vec(), kind, bytes));
        self
    }

    /// The header, and how many bytes of tensors belong behind it.
    pub fn header(&self) -> (Vec<u8>, u64) {
        let mut file = header_claiming(self.tensors.len() as u64, self.keys.len() as u64);
        file.extend(self.keys.concat());
        let mut end = 0_u64;
        for (name, shape, kind, bytes) in &self.tensors {
            file.extend(string(name));
            file.extend((shape.len() as u32).to_le_bytes());
            file.extend(shape.iter().flat_map(|n| n.to_le_bytes()));
            file.extend(kind.to_le_bytes());
            file.extend(end.to_le_bytes());
            end += bytes.next_multiple_of(ALIGNMENT);
        }
        file.resize(file.len().next_multiple_of(ALIGNMENT as usize), 0);
        (file, end)
    }

    /// Writes the file; answers its bytes.
    pub fn write(&self, path: &Path) -> io::Result<u64> {
        let (header, tensors) = self.header();
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        let mut file = fs::File::create(path)?;
        file.write_all(&header)?;
        let bytes = header.len() as u64 + tensors;
        file.set_len(bytes)?;
        Ok(bytes)
    }
}
