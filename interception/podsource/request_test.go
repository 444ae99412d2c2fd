// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception/podsource"
)

// TestEachRequestStandsAlone has a server that speaks HTTP/2, compresses, and gives cookies.
func TestEachRequestStandsAlone(t *testing.T) {
	t.Parallel()
	pod := string(injected(t))
	addresses := map[string]bool{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		addresses[r.RemoteAddr] = true
		if r.ProtoMajor != 1 || !r.Close || r.Header.Get("Accept-Encoding") != "" || r.Header.Get("Cookie") != "" {
			t.Errorf("got a request of %s with %v", r.Proto, r.Header)
		}
		w.Header().Set("Set-Cookie", "a=b")
		if len(addresses) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, pod)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	if _, err := sourceFor(t, server).Pod(t.Context(), web); err != nil || len(addresses) != 2 {
		t.Errorf("%v, after requests from %v", err, addresses)
	}
}

// TestAnswersAreNotQuoted has servers repeat the credential, or a part of it, where no HTTP can be
// read.
func TestAnswersAreNotQuoted(t *testing.T) {
	t.Parallel()
	const ok, credential = "HTTP/1.1 200 OK\r\n", `begin"of\token-middle-of-token-end`
	const chunked = ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n"
	cut := credential[:len(credential)-1]
	for name, test := range map[string]struct{ answer, want string }{
		"as the version":                 {credential + " 200 OK\r\n\r\n", "malformed HTTP header"},
		"as the status":                  {"HTTP/1.1 " + credential + "\r\n\r\n", "malformed HTTP header"},
		"as a header":                    {ok + "Bearer " + credential + "\r\n\r\n", "malformed HTTP header"},
		"as the first line, folded":      {ok + " Bearer " + credential + "\r\n\r\n", "malformed HTTP header"},
		"in a header that ends":          {ok + "X-Echo Authorization Bearer " + cut, "malformed HTTP header"},
		"in a header that is folded":     {ok + "X-Echo Bearer " + credential[:9] + "\r\n " + credential[9:] + "\r\n\r\n", "malformed HTTP header"},
		"as a length":                    {ok + "Content-Length: " + credential + "\r\n\r\n", "malformed HTTP header"},
		"as an encoding":                 {ok + "Transfer-Encoding: " + cut + "\r\n\r\n", "malformed HTTP header"},
		"as the name of a trailer":       {ok + "Transfer-Encoding: chunked\r\nTrailer: " + cut + "\r\n\r\n0\r\n\r\n", ""},
		"as a trailer":                   {chunked + "Bearer " + credential + "\r\n\r\n", "the answer broke off: malformed HTTP body"},
		"in a trailer that is folded":    {chunked + "Bearer " + credential[:9] + "\r\n " + credential[9:] + "\r\n\r\n", "the answer broke off: malformed HTTP body"},
		"in a trailer that ends":         {chunked + "Bearer " + cut, "the answer broke off: "},
		"as the size of a chunk":         {ok + "Transfer-Encoding: chunked\r\n\r\n" + credential + "\r\n", "the answer broke off: malformed HTTP body"},
		"as what follows a chunk's size": {ok + "Transfer-Encoding: chunked\r\n\r\n1\r\n" + credential + "\r\n", "the answer broke off: malformed HTTP body"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := apiServer(t, func(w http.ResponseWriter, r *http.Request, _ int) {
				if r.Header.Get("Authorization") != "Bearer "+credential {
					t.Errorf("got header %v", r.Header)
				}
				speak(t, w, test.answer)
			})
			source := sourceFor(t, server)
			source.Kubeconfig = writeFile(t, kubeconfig(server.URL, server, "token: "+strconv.Quote(credential)))
			_, err := source.Pod(t.Context(), web)
			if test.want != "" {
				wantFailure(t, err, podsource.ErrUnreachable, test.want)
			}
			for _, part := range []string{"begin", "middle", "token-end"} {
				if err == nil || strings.Contains(err.Error(), part) {
					t.Errorf("the error shows a part of the credential: %v", err)
				}
			}
		})
	}
}

func TestAnswersThatAreNotHTTP(t *testing.T) {
	t.Parallel()
	const ok, chunked = "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, test := range map[string]struct{ answer, want string }{
		"nothing":                      {"", "EOF"},
		"half a header":                {ok + "Content-Le", "malformed HTTP header"},
		"another protocol":             {"SSH-2.0-OpenSSH\r\n", "malformed HTTP header"},
		"another version":              {"HTTP/2.0 200 OK\r\n\r\n{}", "the answer is not of HTTP/1"},
		"an early version":             {"HTTP/0.9 200 OK\r\n\r\n{}", "the answer is not of HTTP/1"},
		"a status that is none":        {"HTTP/1.1 099 OK\r\n\r\n" + ok + "\r\n{}", "the answer has status 99, which is not one of HTTP"},
		"no status":                    {"HTTP/1.1 000 OK\r\n\r\n" + ok + "\r\n{}", "the answer has status 0, which is not one of HTTP"},
		"characters that are not text": {ok + " \x1b[2J\r\n\r\n", "malformed HTTP header"},
		"a line without end":           {strings.Repeat("x", 1<<20), "the header of the answer has more than 65536 bytes"},
		"two lengths":                  {ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "malformed HTTP header"},
		"half a chunk":                 {chunked + "5\r\na", "the answer broke off: unexpected EOF"},
		"a chunk without a size":       {chunked + "x\r\n", "the answer broke off: malformed HTTP body"},
		"a size without end":           {chunked + strings.Repeat("0", 1<<20), "the answer broke off: "},
		"more beside chunks than in":   {chunked + strings.Repeat("1;"+strings.Repeat("x", 90)+"\r\n \r\n", 1000), "the answer broke off: "},
		"more after chunks than a few": {chunked + "0\r\n" + strings.Repeat("A: b\r\n", 10000), "the answer broke off: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := sourceFor(t, apiServer(t, func(w http.ResponseWriter, _ *http.Request, _ int) { speak(t, w, test.answer) }))
			_, err := source.Pod(t.Context(), web)
			if failure := wantFailure(t, err, podsource.ErrUnreachable, test.want); failure.Attempts != 10 || len(err.Error()) > 1000 {
				t.Errorf("asked %d times: %v", failure.Attempts, err)
			}
		})
	}
}

func TestChunksWithoutEnd(t *testing.T) {
	t.Parallel()
	source := sourceFor(t, apiServer(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		speak(t, w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+strings.Repeat("100000\r\n"+strings.Repeat(" ", 1<<20)+"\r\n", 9))
	}))
	_, err := source.Pod(t.Context(), web)
	wantFailure(t, err, podsource.ErrTooLarge, "more than 8388608 bytes")
}

// TestLengthThatIsTooLarge has servers that announce a large answer and send nothing of it: it is
// neither waited for nor asked for again.
func TestLengthThatIsTooLarge(t *testing.T) {
	t.Parallel()
	const header = "HTTP/1.1 200 OK\r\nContent-Length: 8388609\r\n\r\n"
	for name, serve := range map[string]func(*testing.T, http.ResponseWriter, string){"and are silent": speakAndListen, "and hang up": speak} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := sourceFor(t, apiServer(t, func(w http.ResponseWriter, _ *http.Request, _ int) { serve(t, w, header) }))
			_, err := source.Pod(t.Context(), web)
			if failure := wantFailure(t, err, podsource.ErrTooLarge, "more than 8388608 bytes"); failure.Attempts != 1 {
				t.Errorf("asked %d times", failure.Attempts)
			}
		})
	}
}

// TestServerThatSwitchesProtocols has a server that keeps the connection open until the other side
// closes it.
func TestServerThatSwitchesProtocols(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	source := sourceFor(t, apiServer(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		defer close(closed)
		speakAndListen(t, w, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	}))
	_, err := source.Pod(t.Context(), web)
	wantFailure(t, err, podsource.ErrAnswer, "status 101")
	<-closed
}
