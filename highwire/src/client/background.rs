//! A client for tasks of other executors: its requests run on a worker in the background.

use super::Client;
use super::error::{Error, Kind};
use super::request::Request;
use crate::app::runtime::worker;
use crate::tower::bodies::send_across;
use bytes::{Buf, Bytes, BytesMut};
use highwire_engine::body::{BodyError, BoxError};
use highwire_engine::call::Reader;
use highwire_engine::client::Failure;
use highwire_engine::{Asked, Promise, promise};
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll, Waker};

/// A client for tasks of other executors, such as tokio's. Its requests run on a worker in a thread of its own; clones
/// share it. The thread ends when the last clone is dropped and its requests are over.
///
/// ```
/// use highwire::client::{Background, Client};
///
/// # let server = highwire::App::new().get("/", || "hello").listen("127.0.0.1:0")?;
/// # let url = format!("http://{}/", server.addresses()[0]);
/// # let handle = server.start()?;
/// let client = Background::start(Client::new())?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let response = client.send(http::Request::get(&url).body(String::new())?).await?;
/// assert_eq!(response.status(), 200);
/// assert_eq!(response.into_body().bytes(1000).await?, "hello");
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// # }).unwrap();
/// # handle.abort();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Background {
    inbox: Arc<Inbox>,
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Background")
    }
}

/// The clients' end of the queue. Dropping it lets the thread end.
struct Inbox {
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    worker: Option<Waker>,
    /// True if the last client was dropped, or if the thread has ended.
    is_closed: bool,
}

/// Begins a request on the worker's thread.
type Job = Box<dyn FnOnce(&Client, Active) + Send>;

fn locked(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let mut queue = locked(&self.queue);
        queue.is_closed = true;
        let worker = queue.worker.take();
        drop(queue);
        worker.into_iter().for_each(Waker::wake);
    }
}

/// Closes the queue when the thread ends, also by a panic, so that no request waits for it.
struct Closing(Arc<Mutex<Queue>>);

impl Drop for Closing {
    fn drop(&mut self) {
        let mut queue = locked(&self.0);
        queue.is_closed = true;
        let jobs = std::mem::take(&mut queue.jobs);
        drop(queue);
        // Dropping a job ends its request.
        drop(jobs);
    }
}

/// Counts a request, until its response's body has ended.
struct Active {
    count: Rc<Cell<usize>>,
    worker: Waker,
}

impl Drop for Active {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
        self.worker.wake_by_ref();
    }
}

impl Background {
    /// Starts a thread for the requests of a client.
    ///
    /// # Errors
    /// Returns an error if the thread or its event loop cannot start.
    pub fn start(client: Client) -> Result<Background, Error> {
        let queue = Arc::new(Mutex::new(Queue::default()));
        let (inbox, (started, starts)) = (queue.clone(), mpsc::channel());
        let engine = client.settings.engine;
        let run = move || {
            let mut worker = match worker(engine) {
                Ok(worker) => worker,
                Err(error) => return drop(started.send(Some(error))),
            };
            let closing = Closing(queue);
            let _ = started.send(None);
            if let Err(error) = worker.block_on(serve(&closing.0, &client)) {
                tracing::error!(%error, "the thread of a client has failed");
            }
        };
        let thread = std::thread::Builder::new().name("highwire-client".to_string());
        thread.spawn(run).map_err(|error| Error::builder(error.to_string()))?;
        match starts.recv() {
            Ok(None) => Ok(Background { inbox: Arc::new(Inbox { queue: inbox }) }),
            Ok(Some(error)) => Err(Error::builder(error.to_string())),
            Err(_) => Err(Error::builder("the thread of the client has panicked")),
        }
    }

    /// Sends a request, whose URI must be absolute. If the future or the response's body is dropped, the request is
    /// cancelled. The worker's thread polls the request's body.
    pub fn send<B>(&self, request: http::Request<B>) -> ResponseFuture
    where
        B: HttpBody<Data: Buf, Error: Into<BoxError>> + Send + 'static,
    {
        let (promise, asked) = promise();
        self.begin(Box::new(move |client, active| {
            let client = client.clone();
            highwire_engine::context::spawn(async move { run(&client, request, promise, active).await });
        }));
        ResponseFuture { asked }
    }

    /// Runs a task on the client's thread, for programs that do more there than send one request. The task is dropped
    /// if the thread has ended.
    ///
    /// ```
    /// use highwire::client::{Background, Client};
    ///
    /// let background = Background::start(Client::new())?;
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// background.spawn(move |client| async move {
    ///     let _ = sender.send(client.get("http://127.0.0.1:1/").send().await.is_err());
    /// });
    /// assert_eq!(receiver.recv(), Ok(true));
    /// # Ok::<(), highwire::client::Error>(())
    /// ```
    pub fn spawn<F, Fut>(&self, start: F)
    where
        F: FnOnce(Client) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        self.begin(Box::new(move |client, active| {
            let task = start(client.clone());
            highwire_engine::context::spawn(async move {
                task.await;
                drop(active);
            });
        }));
    }

    /// Returns false if the thread has ended, because its event loop has failed or a task has panicked.
    pub fn is_running(&self) -> bool {
        !locked(&self.inbox.queue).is_closed
    }

    /// Queues a job. It is dropped if the thread has ended.
    fn begin(&self, job: Job) {
        let mut queue = locked(&self.inbox.queue);
        let mut worker = None;
        if !queue.is_closed {
            queue.jobs.push_back(job);
            worker = queue.worker.take();
        }
        drop(queue);
        worker.into_iter().for_each(Waker::wake);
    }
}

/// Begins the requests of a queue, until it is closed and all of them are over.
async fn serve(queue: &Mutex<Queue>, client: &Client) {
    let count = Rc::new(Cell::new(0));
    poll_fn(|cx| {
        loop {
            let mut queue = locked(queue);
            let Some(job) = queue.jobs.pop_front() else {
                queue.worker = Some(cx.waker().clone());
                return if queue.is_closed && count.get() == 0 { Poll::Ready(()) } else { Poll::Pending };
            };
            drop(queue);
            count.set(count.get() + 1);
            job(client, Active { count: count.clone(), worker: cx.waker().clone() });
        }
    })
    .await;
}

/// Runs a request on the worker's thread.
async fn run<B>(client: &Client, request: http::Request<B>, promise: Promise<Answer>, active: Active)
where
    B: HttpBody<Data: Buf, Error: Into<BoxError>> + 'static,
{
    let sending = async { Ok(client.execute(Request::from_http(request)?).await?.into_http()) };
    let mut sending = std::pin::pin!(sending);
    let sent = poll_fn(|cx| match promise.poll_abandoned(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => sending.as_mut().poll(cx).map(Some),
    });
    let Some(answer) = sent.await else { return };
    promise.keep(answer.map(|response: http::Response<super::ResponseBody>| {
        response.map(|body| {
            let length = body.size_hint().exact();
            let next = |(body, _): &mut (super::ResponseBody, Active), cx: &mut Context<'_>| body.poll_next_part(cx);
            let reader = send_across((body, active), next, |(body, _)| body.trailers().into_iter().collect());
            Body { reader, left: length }
        })
    }));
}

type Answer = Result<http::Response<Body>, Error>;

/// The future of a response's head; from [`Background::send`].
#[must_use = "dropping this future cancels the request"]
pub struct ResponseFuture {
    asked: Asked<Answer>,
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture")
    }
}

impl Future for ResponseFuture {
    type Output = Result<http::Response<Body>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = || Err(Error::new(Kind::Failure(Failure::ShuttingDown), None));
        self.asked.poll(cx).map(|answer| answer.unwrap_or_else(ended))
    }
}

impl<B> tower_service::Service<http::Request<B>> for Background
where
    B: HttpBody<Data: Buf, Error: Into<BoxError>> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Error;
    type Future = ResponseFuture;

    /// Always returns ready. Requests without a connection stay pending, within [`Bounds`](super::Bounds).
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> ResponseFuture {
        self.send(request)
    }
}

/// The body of a response of a [`Background`] client.
pub struct Body {
    reader: Reader<Error>,
    /// The number of bytes that are left, if it is known.
    left: Option<u64>,
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body")
    }
}

impl Body {
    /// Returns the whole body, if it has at most `limit` bytes.
    ///
    /// # Errors
    /// Returns an error if the body is longer, or is not received completely.
    pub async fn bytes(mut self, limit: usize) -> Result<Bytes, Error> {
        let mut whole = BytesMut::new();
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut self.reader).poll_frame(cx)).await {
            let Ok(data) = frame?.into_data() else { continue };
            if whole.len() + data.len() > limit {
                return Err(Error::new(Kind::TooLarge(limit), None));
            }
            whole.extend_from_slice(&data);
        }
        Ok(whole.freeze())
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = Pin::new(&mut self.reader).poll_frame(cx);
        if let (Poll::Ready(Some(Ok(frame))), Some(left)) = (&frame, &mut self.left) {
            *left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.reader.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.left {
            Some(left) => SizeHint::with_exact(left),
            None => self.reader.size_hint(),
        }
    }
}

/// The error of a body whose worker has ended.
impl From<BodyError> for Error {
    fn from(error: BodyError) -> Error {
        Error::new(Kind::Body(error), None)
    }
}
