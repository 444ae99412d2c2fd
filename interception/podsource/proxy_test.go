// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/meshcni/meshcni/interception/podsource"
)

// proxyFor serves as a proxy, with TLS or without, to every client that has the credential, and
// counts requests.
func proxyFor(t *testing.T, credential string, serve http.HandlerFunc) (server *httptest.Server, calls *atomic.Int32) {
	t.Helper()
	calls = new(atomic.Int32)
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if got := r.Header.Get("Proxy-Authorization"); got != credential {
			t.Errorf("the proxy got %q", got)
		}
		serve(w, r)
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(server.Close)
	return server, calls
}

// proxied is a kubeconfig with a proxy.
func proxied(proxy, document string) string {
	return strings.Replace(document, "    server:", "    proxy-url: "+proxy+"\n    server:", 1)
}

func TestServerBehindAPathAndAProxy(t *testing.T) {
	t.Parallel()
	pod := string(injected(t))
	server := apiServer(t, func(w http.ResponseWriter, r *http.Request, call int) {
		if r.URL.Path != "/k8s/clusters/c-1"+podPath || r.Header.Get("Authorization") != "Bearer "+token || r.Header.Get("Proxy-Authorization") != "" {
			t.Errorf("got path %s, %v", r.URL.Path, r.Header)
		}
		answer(http.StatusOK, pod)(w, r, call)
	})
	for name, test := range map[string]struct {
		start            func(*httptest.Server)
		user, credential string
	}{
		"plain":             {(*httptest.Server).Start, "", ""},
		"with TLS":          {(*httptest.Server).StartTLS, "", ""},
		"with a credential": {(*httptest.Server).Start, "me:it's%40@", "Basic bWU6aXQnc0A="},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, calls := proxyFor(t, test.credential, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "" {
					t.Error("the proxy got the server's credential")
				}
				if agent, sent := r.Header["User-Agent"]; sent {
					t.Errorf("the proxy got User-Agent %q, which is for the server", agent)
				}
				tunnel(t, w, r)
			})
			test.start(proxy)
			at := strings.Replace(proxy.URL, "://", "://"+test.user, 1)
			source := sourceFor(t, server)
			source.Kubeconfig = writeFile(t, proxied(at, kubeconfig(server.URL+"/k8s/clusters/c-1", server, "token: "+token)))
			if _, err := source.Pod(t.Context(), web); err != nil {
				t.Error(err)
			}
			if calls.Load() != 1 {
				t.Errorf("%d connections went through the proxy, want 1", calls.Load())
			}
		})
	}
}

func TestServerOfPlainHTTPBehindAProxy(t *testing.T) {
	t.Parallel()
	pod := string(injected(t))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != podPath {
			t.Errorf("got path %s", r.URL.Path)
		}
		answer(http.StatusOK, pod)(w, r, 0)
	}))
	t.Cleanup(server.Close)
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.URL.Path = r.In.URL.Path }}
	proxy, calls := proxyFor(t, "Basic bWU6", func(w http.ResponseWriter, r *http.Request) {
		if r.RequestURI != server.URL+podPath {
			t.Errorf("the proxy got %s", r.RequestURI)
		}
		forward.ServeHTTP(w, r)
	})
	proxy.Start()
	source := podsource.APIServer{
		Kubeconfig: writeFile(t, proxied(strings.Replace(proxy.URL, "://", "://me@", 1), kubeconfig(server.URL, nil, "token: "+token))),
	}
	if _, err := source.Pod(t.Context(), web); err != nil || calls.Load() != 1 {
		t.Errorf("%d requests, %v", calls.Load(), err)
	}
}

func TestProxyThatFails(t *testing.T) {
	t.Parallel()
	server := apiServer(t, func(http.ResponseWriter, *http.Request, int) { t.Error("the server was asked") })
	other, _ := proxyFor(t, "", func(http.ResponseWriter, *http.Request) { t.Error("an unknown proxy was asked") })
	other.StartTLS()
	refusing, _ := proxyFor(t, "", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusProxyAuthRequired) })
	refusing.Start()
	talking, _ := proxyFor(t, "", func(w http.ResponseWriter, _ *http.Request) {
		speak(t, w, "HTTP/1.1 200 Connection established\r\nContent-Length: 2\r\n\r\nhi")
	})
	talking.Start()
	for name, test := range map[string]struct {
		document string
		kind     error
		want     string
	}{
		"refuses":        {proxied(refusing.URL, kubeconfig(server.URL, server, "token: "+token)), podsource.ErrUnreachable, "the proxy answers with status 407"},
		"sends more":     {proxied(talking.URL, kubeconfig(server.URL, server, "token: "+token)), podsource.ErrUnreachable, "the proxy sends more than its answer"},
		"is not there":   {proxied("http://127.0.0.1:1", kubeconfig(server.URL, server, "token: "+token)), podsource.ErrUnreachable, "connection refused"},
		"is not trusted": {strings.Replace(proxied(other.URL, kubeconfig(server.URL, nil, "token: "+token)), "insecure-skip-tls-verify: true", "", 1), podsource.ErrUntrusted, "unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := sourceFor(t, server)
			source.Kubeconfig = writeFile(t, test.document)
			_, err := source.Pod(t.Context(), web)
			wantFailure(t, err, test.kind, test.want)
		})
	}
}

// TestServerThatNoRequestCanName has a server's URL of which net/http makes no request: nothing is
// sent, waited for or tried again.
func TestServerThatNoRequestCanName(t *testing.T) {
	t.Parallel()
	proxy, calls := proxyFor(t, "", func(http.ResponseWriter, *http.Request) {})
	proxy.Start()
	source := podsource.APIServer{Kubeconfig: writeFile(t, proxied(proxy.URL, kubeconfig(`http://a"b`, nil, "token: "+token)))}
	_, err := source.Pod(t.Context(), web)
	failure := wantFailure(t, err, podsource.ErrKubeconfig, "the cluster's server: http: invalid Host header; the node agent writes it")
	if failure.Attempts != 1 || calls.Load() != 0 {
		t.Errorf("tried %d times, and the proxy was asked %d times", failure.Attempts, calls.Load())
	}
}

// tunnel is what an HTTP proxy does for CONNECT (RFC 9110, 9.3.6).
func tunnel(t *testing.T, w http.ResponseWriter, r *http.Request) {
	t.Helper()
	address, err := net.ResolveTCPAddr("tcp", r.Host)
	if err != nil {
		t.Error(err)
		return
	}
	upstream, err := net.DialTCP("tcp", nil, address)
	if err != nil {
		t.Error(err)
		return
	}
	defer upstream.Close()
	w.WriteHeader(http.StatusOK)
	downstream, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer downstream.Close()
	go func() {
		_, _ = io.Copy(upstream, buffered)
		_ = upstream.CloseWrite()
	}()
	_, _ = io.Copy(downstream, upstream)
}
