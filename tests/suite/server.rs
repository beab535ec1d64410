//! A web server on this machine that plays a model hub: each request is recorded, answered and its connection closed.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What was asked.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The first byte that a range asks for.
    pub fn from(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.split('-').next()?.parse().ok()
    }

    /// The last byte that a range asks for, where it names one.
    pub fn to(&self) -> Option<usize> {
        self.header("range")?.split('-').nth(1)?.parse().ok()
    }
}

/// What is answered.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// In place of the body: a part of what is too large to copy for each answer.
    pub part: Option<(Arc<Vec<u8>>, Range<usize>)>,
    /// After so many bytes of the body the connection is cut.
    pub cut: Option<usize>,
    /// Cut by a reset, not by an end.
    pub reset: bool,
    /// After so many bytes of the body nothing more comes, and the connection stays.
    pub stall: Option<usize>,
    /// Bytes a second.
    pub rate: Option<usize>,
    /// No length is stated, and the body is repeated for as long as somebody reads.
    pub endless: bool,
    /// Nothing but these bytes is sent.
    pub raw: Option<Vec<u8>>,
}

impl Reply {
    pub fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub fn body(status: u16, body: &[u8]) -> Self {
        Self { body: body.to_vec(), ..Self::new(status) }
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    fn bytes(&self) -> &[u8] {
        self.part.as_ref().map_or(&self.body, |(whole, range)| &whole[range.clone()])
    }
}

pub struct Server {
    port: u16,
    seen: Arc<Mutex<Vec<Request>>>,
    sent: Arc<AtomicUsize>,
}

impl Server {
    pub fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), answer)
    }

    pub fn on(listener: TcpListener, answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let port = listener.local_addr().unwrap().port();
        let (seen, sent) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let (record, count, answer) = (Arc::clone(&seen), Arc::clone(&sent), Arc::new(answer));
        // The thread ends with the tests: a listener cannot be woken up portably.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (record, count, answer) = (Arc::clone(&record), Arc::clone(&count), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let Some(request) = read(&stream) else { return };
                    record.lock().unwrap().push(request.clone());
                    // A client may leave early.
                    let _ = write(&stream, &answer(&request), &count);
                });
            }
        });
        Self { port, seen, sent }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    /// The requests for one path.
    pub fn seen_at(&self, path: &str) -> Vec<Request> {
        self.seen().into_iter().filter(|request| request.path == path).collect()
    }

    /// Bytes of bodies that were sent in all.
    pub fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }
}

/// All of a request but its last byte: a connection that is closed while that waits to be read is reset.
fn read(mut stream: &TcpStream) -> Option<Request> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let mut lines = head.lines();
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    Some(Request { path, headers: lines.filter_map(header).collect() })
}

fn write(mut stream: &TcpStream, reply: &Reply, count: &AtomicUsize) -> std::io::Result<()> {
    if !reply.reset {
        stream.read_exact(&mut [0])?;
    }
    if let Some(raw) = &reply.raw {
        return stream.write_all(raw);
    }
    let body = reply.bytes();
    let mut head = format!("HTTP/1.1 {} X\r\nconnection: close\r\n", reply.status);
    if !reply.endless {
        head.extend(["content-length: ", &body.len().to_string(), "\r\n"]);
    }
    for (name, value) in &reply.headers {
        head.extend([*name, ": ", value, "\r\n"]);
    }
    stream.write_all((head + "\r\n").as_bytes())?;
    let began = Instant::now();
    let piece = reply.rate.map_or(1 << 20, |rate| (rate / 100).max(1));
    let mut sent = 0;
    loop {
        for chunk in body[..reply.cut.or(reply.stall).unwrap_or(body.len()).min(body.len())].chunks(piece) {
            stream.write_all(chunk)?;
            sent += chunk.len();
            count.fetch_add(chunk.len(), Ordering::SeqCst);
            if let Some(rate) = reply.rate {
                let due = Duration::from_secs_f64(sent as f64 / rate as f64);
                std::thread::sleep(due.saturating_sub(began.elapsed()));
            }
        }
        if !reply.endless {
            break;
        }
    }
    stream.flush()?;
    if reply.stall.is_some() {
        std::thread::sleep(Duration::from_secs(120));
    }
    Ok(())
}
