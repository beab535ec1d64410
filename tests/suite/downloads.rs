//! downloads
