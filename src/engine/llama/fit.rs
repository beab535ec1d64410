//! What the devices that llama.cpp was built for are, and have room for.

use std::ffi::{CStr, c_char};

use llama_cpp_sys_2 as sys;
use serde::Serialize;

/// Something that llama.cpp computes on.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    /// The backend's name for it, like `CPU` or `CUDA0`.
    pub name: String,
    pub description: String,
    pub is_gpu: bool,
    /// Whether its memory is that of the machine.
    pub shares_memory: bool,
    pub free_bytes: u64,
    pub total_bytes: u64,
}

/// The devices of this machine that this build knows of.
pub fn devices() -> Vec<Device> {
    super::backend();
    // SAFETY: each index below the count is a device, which lives as long as the program.
    let all = unsafe { (0..sys::ggml_backend_dev_count()).map(|index| sys::ggml_backend_dev_get(index)) };
    let device = |own| {
        let (mut free, mut total) = (0, 0);
        // SAFETY: as above; both numbers are written before the call returns.
        unsafe { sys::ggml_backend_dev_memory(own, &raw mut free, &raw mut total) };
        // SAFETY: as above, and the strings live as long as the device.
        let (kind, name, description) = unsafe {
            (
                sys::ggml_backend_dev_type(own),
                text(sys::ggml_backend_dev_name(own)),
                text(sys::ggml_backend_dev_description(own)),
            )
        };
        let shares_memory = kind != sys::GGML_BACKEND_DEVICE_TYPE_GPU;
        let is_gpu = [sys::GGML_BACKEND_DEVICE_TYPE_GPU, sys::GGML_BACKEND_DEVICE_TYPE_IGPU].contains(&kind);
        Device { name, description, is_gpu, shares_memory, free_bytes: free as u64, total_bytes: total as u64 }
    };
    all.map(device).collect()
}

/// A string of llama.cpp's own.
pub(super) fn text(text: *const c_char) -> String {
    // SAFETY: llama.cpp's strings are NUL-terminated and live as long as the program.
    if text.is_null() { String::new() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() }
}

/// Bytes that are free on all GPUs together, or where there are none, on those that share the machine's memory. None
/// without a GPU, or in a build that knows of none.
pub fn free_device_memory() -> Option<u64> {
    let devices = devices();
    let free = |shares: bool| {
        let own = devices.iter().filter(|device| device.is_gpu && device.shares_memory == shares);
        own.map(|device| device.free_bytes).reduce(u64::saturating_add)
    };
    free(false).or_else(|| free(true))
}
