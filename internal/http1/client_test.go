// SPDX-License-Identifier: Apache-2.0

package http1_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/internal/http1"
)

// small are bounds that are soon reached.
var small = http1.Client{MaxHeader: 1000, MaxBody: 100}

// get is a request of no interest.
func get() http1.Request {
	return http1.Request{Method: http1.MethodGet, Target: "/a?b=c", Host: "agent", Header: []http1.Field{{Name: "Accept", Value: "text/plain"}}}
}

// speaking is a connection to somebody who reads a request and answers with the text.
func speaking(t testing.TB, text string) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		if _, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
			_, _ = io.WriteString(theirs, text)
		}
	}()
	return ours
}

func TestDoUnderstands(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer string
		want   http1.Response
	}{
		"a length":          {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", http1.Response{Status: 200, Body: []byte("ab")}},
		"more than length":  {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc", http1.Response{Status: 200, Body: []byte("ab")}},
		"the same length":   {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\ncontent-length:1\r\n\r\na", http1.Response{Status: 200, Body: []byte("a")}},
		"until the end":     {"HTTP/1.0 200 OK\r\n\r\nab", http1.Response{Status: 200, Body: []byte("ab")}},
		"no reason":         {"HTTP/1.1 404\r\nContent-Length: 0\r\n\r\n", http1.Response{Status: 404}},
		"bare line feeds":   {"HTTP/1.1 200 OK\nContent-Length: 1\n\na", http1.Response{Status: 200, Body: []byte("a")}},
		"no content":        {"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n", http1.Response{Status: 204}},
		"not modified":      {"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", http1.Response{Status: 304}},
		"another protocol":  {"HTTP/1.1 101 Switching Protocols\r\n\r\nxxx", http1.Response{Status: 101}},
		"interim answers":   {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\na", http1.Response{Status: 200, Body: []byte("a")}},
		"chunks":            {"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n1\r\na\r\n00A ;x=\"y\"\r\n0123456789\r\n0\r\nX: y\r\n\r\n", http1.Response{Status: 200, Body: []byte("a0123456789")}},
		"chunks and length": {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", http1.Response{Status: 200, Body: []byte("ab")}},
		"as much as may be": {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + strings.Repeat("x", 100), http1.Response{Status: 200, Body: bytes.Repeat([]byte("x"), 100)}},
		"all, to the end":   {"HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 100), http1.Response{Status: 200, Body: bytes.Repeat([]byte("x"), 100)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := small.Do(t.Context(), speaking(t, test.answer), get())
			if diff := cmp.Diff(test.want, got, cmp.Transformer("text", func(b []byte) string { return string(b) })); diff != "" || err != nil {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

func TestDoRefuses(t *testing.T) {
	t.Parallel()
	const ok, chunked = "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, test := range map[string]struct{ answer, want string }{
		"nothing":                {"", "unexpected EOF"},
		"half a status line":     {"HTTP/1.1 20", "unexpected EOF"},
		"half a header":          {ok + "Content-Le", "unexpected EOF"},
		"another protocol":       {"SSH-2.0-OpenSSH\r\n", `malformed HTTP status line: "SSH-2.0-OpenSSH"`},
		"HTTP/2":                 {"HTTP/2.0 200 OK\r\n\r\n", "malformed HTTP status line"},
		"no minor version":       {"HTTP/1. 200 OK\r\n\r\n", "malformed HTTP status line"},
		"status of two digits":   {"HTTP/1.1 20 OK\r\n\r\n", "malformed HTTP status line"},
		"status with a sign":     {"HTTP/1.1 +20 OK\r\n\r\n", "malformed HTTP status line"},
		"status of no class":     {"HTTP/1.1 099 OK\r\n\r\n", "malformed HTTP status line"},
		"no colon":               {ok + "hello\r\n\r\n", `malformed HTTP header: "hello"`},
		"blank before the colon": {ok + "A : b\r\n\r\n", "malformed HTTP header"},
		"folded line":            {ok + "A: b\r\n c\r\n\r\n", "malformed HTTP header"},
		"control character":      {ok + "A: b\x00\r\n\r\n", "malformed HTTP header"},
		"length with a sign":     {ok + "Content-Length: +1\r\n\r\na", "malformed HTTP Content-Length"},
		"length of no number":    {ok + "Content-Length: 1, 1\r\n\r\na", "malformed HTTP Content-Length"},
		"no length":              {ok + "Content-Length:\r\n\r\na", "malformed HTTP Content-Length"},
		"length beyond numbers":  {ok + "Content-Length: 99999999999999999999\r\n\r\na", "malformed HTTP Content-Length"},
		"two lengths":            {ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "malformed HTTP Content-Length"},
		"two encodings":          {ok + "Transfer-Encoding: gzip, chunked\r\n\r\n", "malformed HTTP Transfer-Encoding"},
		"chunked twice":          {ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "malformed HTTP Transfer-Encoding"},
		"chunks of HTTP/1.0":     {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "malformed HTTP Transfer-Encoding"},
		"half a body":            {ok + "Content-Length: 2\r\n\r\na", "the answer broke off: unexpected EOF"},
		"half a chunk":           {chunked + "5\r\nab", "the answer broke off: unexpected EOF"},
		"no chunk":               {chunked, "the answer broke off: unexpected EOF"},
		"no last chunk":          {chunked + "1\r\na\r\n", "the answer broke off: unexpected EOF"},
		"half a trailer":         {chunked + "0\r\nA: b\r\n", "the answer broke off: unexpected EOF"},
		"malformed trailer":      {chunked + "0\r\nhello\r\n\r\n", `malformed HTTP header: "hello"`},
		"chunk without a size":   {chunked + "\r\n", `malformed HTTP chunk: ""`},
		"chunk of no number":     {chunked + "x\r\n", `malformed HTTP chunk: "x"`},
		"chunk below zero":       {chunked + "-1\r\n", "malformed HTTP chunk"},
		"chunk beyond numbers":   {chunked + "8000000000000000\r\n", "malformed HTTP chunk"},
		"chunk longer than said": {chunked + "1\r\nabc\r\n0\r\n\r\n", `malformed HTTP end of a chunk: "bc"`},
		"chunk by line feed":     {chunked + "0\n\n", "malformed HTTP chunk"},
		"endless size":           {chunked + strings.Repeat("0", 1<<20), "malformed HTTP chunk"},
		"endless end of chunk":   {chunked + "1\r\na" + strings.Repeat("x", 1<<20), "malformed HTTP chunk"},
		"more frame than body":   {chunked + strings.Repeat("1;"+strings.Repeat("x", 90)+"\r\na\r\n", 90), "malformed HTTP chunk"},
		"endless header":         {ok + strings.Repeat("A: "+strings.Repeat("x", 90)+"\r\n", 90), "the header of the answer has more than 1000 bytes"},
		"endless line":           {strings.Repeat("x", 2000), "the header of the answer has more than 1000 bytes"},
		"endless interim":        {strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100), "the header of the answer has more than 1000 bytes"},
		"endless trailer":        {chunked + "0\r\n" + strings.Repeat("A: b\r\n", 10000), "the header of the answer has more than 1000 bytes"},
		"too large":              {ok + "Content-Length: 101\r\n\r\n", http1.ErrTooLarge.Error()},
		"too large to the end":   {ok + "\r\n" + strings.Repeat("x", 101), http1.ErrTooLarge.Error()},
		"too large a chunk":      {chunked + "65\r\n" + strings.Repeat("x", 101), http1.ErrTooLarge.Error()},
		"too many chunks":        {chunked + strings.Repeat("1\r\na\r\n", 101), http1.ErrTooLarge.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := small.Do(t.Context(), speaking(t, test.answer), get())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %d %q, %v, want %q", got.Status, got.Body, err, test.want)
			}
			if got.Status != 0 || got.Body != nil {
				t.Errorf("got %d %q beside an error", got.Status, got.Body)
			}
		})
	}
}

// TestDoWithNetHTTP has net/http read what is sent, and write what is read.
func TestDoWithNetHTTP(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("0123456789", 50_000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != "POST" || r.URL.String() != "/a?b=c" || r.Host != "agent" || r.Header.Get("Accept") != "text/plain" || !r.Close {
			t.Errorf("got %s %s of %s, %v, %v", r.Method, r.URL, r.Host, r.Header, err)
		}
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = w.Write(body)
		_ = http.NewResponseController(w).Flush() // in chunks, then
		_, _ = io.WriteString(w, large)
	}))
	defer server.Close()
	request := get()
	request.Method, request.Body = http1.MethodPost, []byte("hello")
	connection, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	got, err := http1.Client{MaxHeader: 1 << 10, MaxBody: 1 << 20}.Do(t.Context(), connection, request)
	if err != nil || got.Status != http.StatusOK || string(got.Body) != "hello"+large {
		t.Errorf("got %d with %d bytes, %v", got.Status, len(got.Body), err)
	}
	if _, err := connection.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection is still there: %v", err)
	}
}

func TestDoEndsWithTheContext(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"before an answer": "", "in the header": "HTTP/1.1 200", "in the body": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\na",
		"in a chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\na",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := net.Pipe()
			defer theirs.Close()
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				defer cancel()
				if _, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
					_, _ = io.WriteString(theirs, text)
				}
			}()
			_, err := small.Do(ctx, ours, get())
			if failure := net.Error(nil); !errors.As(err, &failure) || !failure.Timeout() {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestRequestsThatSayMore(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*http1.Request){
		"no method":        func(r *http1.Request) { r.Method = "" },
		"two words":        func(r *http1.Request) { r.Method = "GET /" },
		"no target":        func(r *http1.Request) { r.Target = "" },
		"blank in it":      func(r *http1.Request) { r.Target = "/ HTTP/1.1" },
		"line in it":       func(r *http1.Request) { r.Target = "/\r\nA:b" },
		"no host":          func(r *http1.Request) { r.Host = "" },
		"line in the host": func(r *http1.Request) { r.Host = "a\r\nb: c" },
		"no name":          func(r *http1.Request) { r.Header[0].Name = "" },
		"colon in a name":  func(r *http1.Request) { r.Header[0].Name = "a:" },
		"line in a value":  func(r *http1.Request) { r.Header[0].Value = "a\nb: secret" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := net.Pipe()
			defer theirs.Close()
			request := get()
			change(&request)
			if _, err := small.Do(t.Context(), ours, request); err == nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v", err)
			}
			if text, err := io.ReadAll(theirs); err != nil || len(text) > 0 {
				t.Errorf("sent %q, %v", text, err)
			}
		})
	}
}

func TestTunnel(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ answer, want string }{
		"made":            {"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n", ""},
		"without reason":  {"HTTP/1.0 200\r\n\r\n", ""},
		"refused":         {"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "the proxy answers with status 407"},
		"no answer":       {"", "the proxy: unexpected EOF"},
		"garbage":         {"hello\r\n", "the proxy: malformed HTTP status line"},
		"it speaks first": {"HTTP/1.1 200 OK\r\n\r\nhello", "the proxy sends more than its answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := net.Pipe()
			defer ours.Close()
			requests := make(chan *http.Request, 1)
			go func() {
				defer theirs.Close()
				request, err := http.ReadRequest(bufio.NewReader(theirs))
				if err != nil {
					t.Error(err)
				}
				requests <- request
				_, _ = io.WriteString(theirs, test.answer)
			}()
			err := small.Tunnel(t.Context(), ours, "server:443", http1.Field{Name: "Proxy-Authorization", Value: "Basic x"})
			if (err == nil) != (test.want == "") || (err != nil && !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			r := <-requests
			if r.Method != "CONNECT" || r.RequestURI != "server:443" || r.Host != "server:443" || r.Header.Get("Proxy-Authorization") != "Basic x" {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// FuzzDo holds the client to what net/http makes of the same answer: what both take is the same.
func FuzzDo(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 404\r\n\r\nab",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x\r\na\r\n2\r\nbc\r\n0\r\nA: b\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		got, err := small.Do(t.Context(), &canned{Reader: bytes.NewReader(answer)}, get())
		if err != nil {
			return
		}
		if len(got.Body) > small.MaxBody {
			t.Errorf("a body of %d bytes", len(got.Body))
		}
		reader := bufio.NewReader(bytes.NewReader(answer))
		want, err := http.ReadResponse(reader, nil)
		for err == nil && want.StatusCode < http.StatusOK && want.StatusCode != http.StatusSwitchingProtocols {
			want, err = http.ReadResponse(reader, nil)
		}
		if err != nil {
			t.Fatalf("net/http: %v", err)
		}
		defer want.Body.Close()
		body, err := io.ReadAll(want.Body)
		if err != nil || want.StatusCode != got.Status || !bytes.Equal(body, got.Body) {
			t.Errorf("got %d %q, net/http %d %q, %v", got.Status, got.Body, want.StatusCode, body, err)
		}
	})
}

// canned is a connection to somebody who has said all already.
type canned struct {
	net.Conn
	io.Reader
}

func (c *canned) Read(p []byte) (int, error)  { return c.Reader.Read(p) }
func (c *canned) Write(p []byte) (int, error) { return len(p), nil }
func (c *canned) Close() error                { return nil }
