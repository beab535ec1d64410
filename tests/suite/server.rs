//! A web server on this machine that plays a model hub: each request is recorded, answered and its connection closed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
    /// After so many bytes of the body the connection is cut.
    pub cut: Option<usize>,
    /// After so many bytes of the body nothing more comes, and the connection stays.
    pub stall: Option<usize>,
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
}

pub struct Server {
    port: u16,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (record, answer) = (Arc::clone(&seen), Arc::new(answer));
        // The thread ends with the tests: a listener cannot be woken up portably.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (record, answer) = (Arc::clone(&record), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let Some(request) = read(&stream) else { return };
                    record.lock().unwrap().push(request.clone());
                    // A client may leave early.
                    let _ = write(&stream, &answer(&request));
                });
            }
        });
        Self { port, seen }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let header = |line: String| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let headers = lines.take_while(|line| !line.is_empty()).filter_map(header).collect();
    Some(Request { path, headers })
}

fn write(mut stream: &TcpStream, reply: &Reply) -> std::io::Result<()> {
    let length = reply.body.len();
    let mut head = format!("HTTP/1.1 {} X\r\ncontent-length: {length}\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.extend([*name, ": ", value, "\r\n"]);
    }
    stream.write_all((head + "\r\n").as_bytes())?;
    stream.write_all(&reply.body[..reply.cut.or(reply.stall).unwrap_or(length)])?;
    stream.flush()?;
    if reply.stall.is_some() {
        std::thread::sleep(Duration::from_secs(120));
    }
    Ok(())
}
