//! Loading a model: parameters, progress, cancel, and the owner of what was loaded.

use std::ffi::{CString, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use llama_cpp_2::model::LlamaModel as Weights;
use llama_cpp_sys_2 as sys;

use super::vocab::LlamaVocab;
use crate::engine::{
    Context, ContextSettings, EngineError, Grammars, KvLayout, LoadProgress, Model, Save, StateFormat, Vocab,
};

/// What a model is loaded with.
#[derive(Clone, Debug)]
pub struct LoadSettings {
    /// Layers on the GPU; `None` is all that fit.
    pub gpu_layers: Option<u32>,
    /// Whether weights are rearranged for the CPU's vector units: loading takes longer, evaluating several rows is faster.
    pub repack: bool,
}

/// A model in memory.
#[derive(Clone)]
pub struct LlamaModel {
    vocab: Arc<LlamaVocab>,
    grammars: Arc<Grammars>,
    weights: Arc<Weights>,
    layout: KvLayout,
}

// The binding's model is a transparent wrapper of the pointer that llama.cpp returns.
const _: () = assert!(size_of::<Weights>() == size_of::<NonNull<sys::llama_model>>());
const _: () = assert!(align_of::<Weights>() == align_of::<NonNull<sys::llama_model>>());

/// The pointer inside the binding's model, for what it does not offer.
pub(super) fn pointer(weights: &Weights) -> *const sys::llama_model {
    // SAFETY: sizes checked above; reading a non-null pointer out of its transparent wrapper.
    unsafe { *std::ptr::from_ref(weights).cast::<*const sys::llama_model>() }
}

impl LlamaModel {
    /// Loads a GGUF file (the first one of a split model).
    ///
    /// # Errors
    /// [`EngineError::Aborted`] when `progress` answers false, else llama.cpp's own reason.
    pub fn load(path: &Path, settings: &LoadSettings, progress: LoadProgress) -> Result<Self, EngineError> {
        unsafe extern "C" fn report(done: f32, data: *mut c_void) -> bool {
            // SAFETY: `data` is the `Watch` below, which outlives the load; llama.cpp calls from the loading thread only.
            let watch = unsafe { &mut *data.cast::<Watch>() };
            watch.go_on = watch.go_on && (watch.progress)(done);
            watch.go_on
        }
        struct Watch<'a> {
            progress: LoadProgress<'a>,
            go_on: bool,
        }

        let name = path.to_str().and_then(|path| CString::new(path).ok());
        let name = name.ok_or_else(|| EngineError::Failed("the path is not valid UTF-8".into()))?;
        super::backend();
        super::last_error();
        let mut watch = Watch { progress, go_on: true };
        // SAFETY: the parameters come from llama.cpp's own defaults, the callback data outlives the call, and the
        // result is either null or a model that we own from here on.
        let loaded = unsafe {
            let mut params = sys::llama_model_default_params();
            params.n_gpu_layers = settings.gpu_layers.map_or(-1, |layers| i32::try_from(layers).unwrap_or(i32::MAX));
            params.use_extra_bufts = settings.repack;
            params.progress_callback = Some(report);
            params.progress_callback_user_data = (&raw mut watch).cast();
            sys::llama_model_load_from_file(name.as_ptr(), params)
        };
        let Some(loaded) = NonNull::new(loaded) else {
            return Err(match super::last_error() {
                _ if !watch.go_on => EngineError::Aborted,
                Some(cause) => EngineError::Failed(cause),
                None => EngineError::Failed("llama.cpp did not say why".into()),
            });
        };
        // SAFETY: `Weights` is `repr(transparent)` over a transparent non-null pointer (sizes checked above), and owns
        // the model as the binding's own constructor would have it.
        let weights = Arc::new(unsafe { std::mem::transmute::<NonNull<sys::llama_model>, Weights>(loaded) });
        let vocab = Arc::new(LlamaVocab::new(Arc::clone(&weights)));
        Ok(Self { vocab, grammars: Arc::default(), weights, layout: KvLayout::default() })
    }
}

impl Model for LlamaModel {
    fn vocab(&self) -> &dyn Vocab {
        self.vocab.as_ref()
    }

    fn chat_template(&self) -> Option<String> {
        self.weights.chat_template(None).ok()?.to_string().ok()
    }

    fn trained_context(&self) -> usize {
        self.weights.n_ctx_train() as usize
    }

    fn with_layout(self: Arc<Self>, layout: KvLayout) -> Arc<dyn Model> {
        Arc::new(Self { layout, ..Self::clone(&self) })
    }

    fn save(&self) -> Save {
        super::context::save(&self.weights)
    }

    fn state_format(&self, n_ctx: usize) -> StateFormat {
        super::context::state_format(&self.weights, self.layout, n_ctx)
    }

    fn grammars(&self) -> &Grammars {
        &self.grammars
    }

    fn context(self: Arc<Self>, settings: &ContextSettings) -> Result<Box<dyn Context>, EngineError> {
        let context = super::context::LlamaContext::new(Arc::clone(&self.weights), self.layout, settings)?;
        Ok(Box::new(context))
    }
}
