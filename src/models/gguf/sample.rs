//! Small GGUF files for the tests of this room.

/// A file with these values (see below) and one F32 tensor of 8 elements.
pub(crate) fn file(values: &[Vec<u8>]) -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend(1u64.to_le_bytes());
    out.extend((values.len() as u64).to_le_bytes());
    out.extend(values.concat());
    out.extend(string("w"));
    out.extend(1u32.to_le_bytes());
    out.extend(8u64.to_le_bytes());
    out.extend(0u32.to_le_bytes());
    out.extend(0u64.to_le_bytes());
    out.resize(out.len().next_multiple_of(32), 0);
    out.extend([0; 32]);
    out
}

pub(crate) fn text(key: &str, value: &str) -> Vec<u8> {
    [string(key), 8u32.to_le_bytes().to_vec(), string(value)].concat()
}

pub(crate) fn number(key: &str, value: u32) -> Vec<u8> {
    [string(key), 4u32.to_le_bytes().to_vec(), value.to_le_bytes().to_vec()].concat()
}

pub(crate) fn texts(key: &str, items: &[&str]) -> Vec<u8> {
    array(key, 8, &items.iter().map(|item| string(item)).collect::<Vec<_>>())
}

pub(crate) fn numbers(key: &str, items: &[i32]) -> Vec<u8> {
    array(key, 5, &items.iter().map(|item| item.to_le_bytes().to_vec()).collect::<Vec<_>>())
}

fn array(key: &str, kind: u32, items: &[Vec<u8>]) -> Vec<u8> {
    let (kind, count) = (kind.to_le_bytes(), (items.len() as u64).to_le_bytes());
    [string(key), 9u32.to_le_bytes().to_vec(), kind.to_vec(), count.to_vec(), items.concat()].concat()
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}
