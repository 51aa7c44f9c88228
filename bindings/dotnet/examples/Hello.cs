// A server in C# through P/Invoke and highwire.h: /hello, /users/{id}, and POST /echo, which sends JSON back.
//
//     mcs Hello.cs && LD_LIBRARY_PATH=PREFIX/lib mono Hello.exe 127.0.0.1:8080
using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using System.Text;

static class Highwire
{
    const string Library = "highwire";

    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    public delegate void Handler(ulong request, IntPtr data);

    [StructLayout(LayoutKind.Sequential)]
    public struct HighwireString
    {
        public IntPtr Data;
        public UIntPtr Length;

        public byte[] Bytes()
        {
            var bytes = new byte[(int)Length];
            if (bytes.Length > 0) Marshal.Copy(Data, bytes, 0, bytes.Length);
            return bytes;
        }
    }

    [DllImport(Library)] static extern IntPtr highwire_last_error();
    [DllImport(Library)] static extern int highwire_app_new(out ulong app);
    [DllImport(Library)] static extern int highwire_app_route(ulong app, string method, string path, int body, Handler handler, IntPtr data);
    [DllImport(Library)] static extern int highwire_server_new(ulong app, out ulong server);
    [DllImport(Library)] static extern int highwire_server_listen(ulong server, string address);
    [DllImport(Library)] static extern IntPtr highwire_server_address(ulong server, UIntPtr index);
    [DllImport(Library)] static extern int highwire_server_run(ulong server);
    [DllImport(Library)] static extern int highwire_request_param(ulong request, string name, out HighwireString value);
    [DllImport(Library)] static extern int highwire_request_body(ulong request, out HighwireString value);
    [DllImport(Library)] static extern int highwire_respond(ulong request, uint status, string contentType, byte[] body, UIntPtr length);

    const int BodyNone = 0, BodyWhole = 1;

    // The delegates must live as long as the server.
    static readonly List<Handler> Handlers = new List<Handler>();

    static void Check(int result)
    {
        if (result == 0) return;
        Console.Error.WriteLine(Marshal.PtrToStringAnsi(highwire_last_error()));
        Environment.Exit(1);
    }

    static void Route(ulong app, string method, string path, int body, Action<ulong> action)
    {
        Handler handler = (request, data) =>
        {
            // No exception may leave a callback.
            try { action(request); }
            catch (Exception problem) { Respond(request, 500, "text/plain", problem.Message); }
        };
        Handlers.Add(handler);
        Check(highwire_app_route(app, method, path, body, handler, IntPtr.Zero));
    }

    static void Respond(ulong request, uint status, string contentType, string text)
    {
        var bytes = Encoding.UTF8.GetBytes(text);
        highwire_respond(request, status, contentType, bytes, (UIntPtr)bytes.Length);
    }

    static void Main(string[] arguments)
    {
        ulong app, server;
        Check(highwire_app_new(out app));
        Route(app, "GET", "/hello", BodyNone, request => Respond(request, 200, "text/plain", "Hello, World!"));
        Route(app, "GET", "/users/{id}", BodyNone, request =>
        {
            HighwireString id;
            Check(highwire_request_param(request, "id", out id));
            Respond(request, 200, "text/plain", "user " + Encoding.UTF8.GetString(id.Bytes()));
        });
        Route(app, "POST", "/echo", BodyWhole, request =>
        {
            HighwireString body;
            Check(highwire_request_body(request, out body));
            var text = Encoding.UTF8.GetString(body.Bytes()).Trim();
            // Mono has no parser of JSON of its own. This one only tells whether there is a value.
            if (text.Length == 0 || "{[\"-0123456789tfn".IndexOf(text[0]) < 0) Respond(request, 400, "text/plain", "this is not JSON");
            else Respond(request, 200, "application/json", "{\"echo\":" + text + "}");
        });
        Check(highwire_server_new(app, out server));
        Check(highwire_server_listen(server, arguments.Length > 0 ? arguments[0] : "127.0.0.1:8080"));
        Console.WriteLine("http://" + Marshal.PtrToStringAnsi(highwire_server_address(server, UIntPtr.Zero)));
        Console.Out.Flush();
        Check(highwire_server_run(server));
    }
}
