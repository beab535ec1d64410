//! What the devices that llama.cpp was built for have room for.

use llama_cpp_sys_2 as sys;

/// Bytes that are free on all GPUs together, or where there are none, on those that share the machine's memory. None
/// without a GPU, or in a build that knows of none.
pub fn free_device_memory() -> Option<u64> {
    super::backend();
    free_on(sys::GGML_BACKEND_DEVICE_TYPE_GPU).or_else(|| free_on(sys::GGML_BACKEND_DEVICE_TYPE_IGPU))
}

fn free_on(kind: sys::ggml_backend_dev_type) -> Option<u64> {
    // SAFETY: each index below the count is a device, which lives as long as the program.
    let devices = unsafe { (0..sys::ggml_backend_dev_count()).map(|index| sys::ggml_backend_dev_get(index)) };
    // SAFETY: as above.
    let devices = devices.filter(|device| unsafe { sys::ggml_backend_dev_type(*device) } == kind);
    let free = devices.map(|device| {
        let (mut free, mut total) = (0, 0);
        // SAFETY: as above; both numbers are written before the call returns.
        unsafe { sys::ggml_backend_dev_memory(device, &raw mut free, &raw mut total) };
        free as u64
    });
    free.reduce(u64::saturating_add)
}
