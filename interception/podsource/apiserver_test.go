// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
)

const (
	token   = "a.bearer.token-of-this-test"
	uid     = "11111111-2222-3333-4444-555555555555"
	podPath = "/api/v1/namespaces/shop/pods/web-0"
)

var web = podsource.Ref{Namespace: "shop", Name: "web-0", UID: uid}

// apiServer is a TLS server that demands the token and then calls answer, with how often it was
// called.
func apiServer(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, call int)) *httptest.Server {
	t.Helper()
	var calls atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, int(calls.Add(1)))
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// sourceFor is a source that doesn't wait between attempts, with a kubeconfig for the server.
func sourceFor(t *testing.T, server *httptest.Server) podsource.APIServer {
	t.Helper()
	return podsource.APIServer{
		Kubeconfig: writeFile(t, kubeconfig(server.URL, server, "token: "+token)),
		Backoff:    func(int) time.Duration { return 0 },
	}
}

func kubeconfig(url string, server *httptest.Server, user string) string {
	authority := "insecure-skip-tls-verify: true"
	if server != nil {
		certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		authority = "certificate-authority-data: " + base64.StdEncoding.EncodeToString(certificate)
	}
	return fmt.Sprintf(`apiVersion: v1
clusters:
- cluster:
    %s
    server: %s
  name: local
contexts:
- context:
    cluster: local
    user: istio-cni
  name: istio-cni-context
current-context: istio-cni-context
kind: Config
preferences: {}
users:
- name: istio-cni
  user:
    %s
`, authority, url, user)
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func injected(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "injected.json"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// answer writes a body with a status.
func answer(status int, body string) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func statusObject(message string) string {
	return `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "` + message + `"}`
}

func TestPod(t *testing.T) {
	t.Parallel()
	body := injected(t)
	server := apiServer(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		if r.URL.Path != podPath || r.Method != http.MethodGet || r.Header.Get("Authorization") != "Bearer "+token {
			t.Errorf("got request %s %s with %v", r.Method, r.URL, r.Header)
		}
		w.WriteHeader(http.StatusEarlyHints) // and what follows is the answer
		_, _ = w.Write(body)
	})
	got, err := sourceFor(t, server).Pod(t.Context(), web)
	if err != nil {
		t.Fatal(err)
	}
	want := interception.Pod{
		Namespace: "shop", Name: "web-0", UID: uid,
		Labels: map[string]string{"app": "web", "sidecar.istio.io/inject": "true"},
		Annotations: map[string]string{
			"sidecar.istio.io/status":                       `{"initContainers":["istio-validation","istio-proxy"]}`,
			"traffic.sidecar.istio.io/excludeOutboundPorts": "3306",
		},
		ServiceAccount: "web",
		RunAsUser:      new(int64(1000)), RunAsGroup: new(int64(0)),
		Containers: []interception.Container{
			{Name: "istio-validation", Init: true, Args: []string{"istio-iptables", "-p", "15001"}, Env: map[string]string{}},
			{
				Name: "istio-proxy", Init: true, RestartPolicy: "Always", Args: []string{"proxy", "sidecar", "--domain", "$(POD_NAMESPACE).svc.cluster.local"},
				Env:       map[string]string{"ISTIO_META_DNS_CAPTURE": "true", "POD_NAME": "", "TWICE": "second"},
				RunAsUser: new(int64(1337)), RunAsGroup: new(int64(1337)),
			},
			{Name: "web", Env: map[string]string{}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPodWithoutUIDInTheRefIsNotCompared(t *testing.T) {
	t.Parallel()
	server := apiServer(t, answer(http.StatusOK, `{"kind": "Pod", "apiVersion": "v1",
		"metadata": {"namespace": "shop", "name": "web-0", "uid": "any"}, "spec": {"hostNetwork": true}}`))
	pod, err := sourceFor(t, server).Pod(t.Context(), podsource.Ref{Namespace: "shop", Name: "web-0"})
	if err != nil || pod.UID != "any" || !pod.HostNetwork {
		t.Errorf("got %+v, %v", pod, err)
	}
}

func TestMirrorOfAStaticPodIsKnownByItsAnnotation(t *testing.T) {
	t.Parallel()
	server := apiServer(t, answer(http.StatusOK, `{"kind": "Pod", "apiVersion": "v1", "metadata": {"namespace": "shop", "name": "web-0",
		"uid": "of-the-mirror", "annotations": {"kubernetes.io/config.mirror": "`+uid+`"}}}`))
	if _, err := sourceFor(t, server).Pod(t.Context(), web); err != nil {
		t.Error(err)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	pod := string(injected(t))
	for _, test := range []struct {
		name     string
		answer   func(http.ResponseWriter, *http.Request, int)
		kind     error
		want     string
		attempts int
	}{
		{
			"401", answer(http.StatusUnauthorized, statusObject("Unauthorized")),
			podsource.ErrUnauthorized, `status 401, "Unauthorized" (asked 4 times); see whether the node agent runs and renews the token`, 4,
		},
		{
			"403", answer(http.StatusForbidden, statusObject(`pods \"web-0\" is forbidden`)),
			podsource.ErrForbidden, `status 403, "pods "web-0" is forbidden"; give the service account`, 1,
		},
		{
			"404", answer(http.StatusNotFound, statusObject("not found")),
			podsource.ErrNotFound, `status 404, "not found" (asked 4 times); nothing has to be done if the pod was deleted`, 4,
		},
		{"404 of something else", answer(http.StatusNotFound, "<html>"), podsource.ErrNotFound, "status 404 (asked", 4},
		{"429", answer(http.StatusTooManyRequests, ""), podsource.ErrServer, "status 429 (asked 10 times)", 10},
		{"500", answer(http.StatusInternalServerError, statusObject("etcd")), podsource.ErrServer, `status 500, "etcd" (asked 10 times)`, 10},
		{"503", answer(http.StatusServiceUnavailable, "no endpoints"), podsource.ErrServer, "status 503 (asked 10 times)", 10},
		{"400", answer(http.StatusBadRequest, ""), podsource.ErrAnswer, "status 400; see whether the server in", 1},
		{"204", answer(http.StatusNoContent, ""), podsource.ErrAnswer, "status 204", 1},
		{"garbage", answer(http.StatusOK, "<html>hello</html>"), podsource.ErrAnswer, "it is not JSON", 1},
		{"nothing", answer(http.StatusOK, ""), podsource.ErrAnswer, "it is not JSON", 1},
		{"half a pod", answer(http.StatusOK, pod[:len(pod)/2]), podsource.ErrAnswer, "it is not JSON", 1},
		{"not an object", answer(http.StatusOK, "[]"), podsource.ErrNotPod, "cannot unmarshal array", 1},
		{"not a pod", answer(http.StatusOK, `{"kind": "Service", "apiVersion": "v1"}`), podsource.ErrNotPod, `it is of kind "Service", version "v1"`, 1},
		{"pod of another version", answer(http.StatusOK, `{"kind": "Pod", "apiVersion": "v2"}`), podsource.ErrNotPod, `version "v2"`, 1},
		{"field of another type", answer(http.StatusOK, strings.Replace(pod, "1000", `"root"`, 1)), podsource.ErrNotPod, "runAsUser", 1},
		{"another name", answer(http.StatusOK, strings.Replace(pod, "web-0", "web-1", 1)), podsource.ErrNotPod, `it is "shop"/"web-1"`, 1},
		{"another namespace", answer(http.StatusOK, strings.Replace(pod, `"shop"`, `"shed"`, 1)), podsource.ErrNotPod, `it is "shed"/"web-0"`, 1},
		{
			"another UID", answer(http.StatusOK, strings.Replace(pod, uid, "other", 1)),
			podsource.ErrStalePod, `with UID "other", and not "` + uid + `" (asked 4 times); nothing has to be done if`, 4,
		},
		{"redirect", func(w http.ResponseWriter, r *http.Request, _ int) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}, podsource.ErrAnswer, "status 302", 1},
		{"endless", func(w http.ResponseWriter, _ *http.Request, _ int) {
			for chunk := bytes.Repeat([]byte{' '}, 1<<20); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, podsource.ErrTooLarge, "more than 8388608 bytes", 1},
		{"connection cut", func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "{")
		}, podsource.ErrUnreachable, "the answer broke off: unexpected EOF (asked 10 times); see whether the server in", 10},
		{"credential in a message", func(w http.ResponseWriter, r *http.Request, call int) {
			answer(http.StatusForbidden, statusObject(strings.Repeat("x", 500)+r.Header.Get("Authorization")))(w, r, call)
		}, podsource.ErrForbidden, "xBearer (cred...", 1},
		{"credential as the kind", func(w http.ResponseWriter, r *http.Request, call int) {
			answer(http.StatusOK, `{"kind": "`+r.Header.Get("Authorization")+`\u0007"}`)(w, r, call)
		}, podsource.ErrNotPod, `kind "Bearer (credential)."`, 1},
		{"endless header", func(w http.ResponseWriter, _ *http.Request, _ int) {
			speak(t, w, "HTTP/1.1 200 OK\r\n"+strings.Repeat("X-Header: "+strings.Repeat("x", 90)+"\r\n", 1000)+"\r\n")
		}, podsource.ErrUnreachable, "header of the answer has more than 65536 bytes", 10},
		{"interim answers without end", func(w http.ResponseWriter, _ *http.Request, _ int) {
			speak(t, w, strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 4000))
		}, podsource.ErrUnreachable, "header of the answer has more than 65536 bytes", 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			source := sourceFor(t, apiServer(t, test.answer))
			_, err := source.Pod(t.Context(), web)
			failure := wantFailure(t, err, test.kind, test.want)
			if failure.Attempts != test.attempts {
				t.Errorf("asked %d times, want %d", failure.Attempts, test.attempts)
			}
			if failure.Pod != web || failure.Kubeconfig != source.Kubeconfig || !strings.HasPrefix(failure.Server, "https://127.0.0.1:") {
				t.Errorf("got %+v", failure)
			}
		})
	}
}

// speak answers with bytes that need not be HTTP, and hangs up.
func speak(t *testing.T, w http.ResponseWriter, text string) {
	t.Helper()
	answerWith(t, w, func(connection net.Conn) { _, _ = io.WriteString(connection, text) })
}

// speakAndListen answers with bytes, and waits for the other side to hang up.
func speakAndListen(t *testing.T, w http.ResponseWriter, text string) {
	t.Helper()
	answerWith(t, w, func(connection net.Conn) {
		_, _ = io.WriteString(connection, text)
		_, _ = io.Copy(io.Discard, connection)
	})
}

func answerWith(t *testing.T, w http.ResponseWriter, write func(net.Conn)) {
	t.Helper()
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer connection.Close()
	write(connection)
}

func wantFailure(t *testing.T, err, kind error, text string) podsource.Error {
	t.Helper()
	var failure *podsource.Error
	if !errors.As(err, &failure) || !errors.Is(err, kind) {
		t.Fatalf("got error %v, want a *podsource.Error of kind %q", err, kind)
	}
	if !strings.Contains(err.Error(), text) {
		t.Errorf("got error %q, want %q", err, text)
	}
	if strings.Contains(err.Error(), token) {
		t.Errorf("the error shows the token: %v", err)
	}
	return *failure
}

func TestFailuresBeforeAnAnswer(t *testing.T) {
	t.Parallel()
	unused := func(http.ResponseWriter, *http.Request, int) { t.Error("the server was asked") }
	for _, test := range []struct {
		name, want string
		kind       error
		change     func(s *podsource.APIServer, dir string, server *httptest.Server)
	}{
		{
			"nobody listens", "connection refused (asked 10 times); see whether the server in", podsource.ErrUnreachable,
			func(_ *podsource.APIServer, _ string, server *httptest.Server) { server.Close() },
		},
		{
			"another authority", "certificate signed by unknown authority; see whether the CA", podsource.ErrUntrusted,
			func(s *podsource.APIServer, _ string, server *httptest.Server) {
				rewrite(s.Kubeconfig, strings.Replace(kubeconfig(server.URL, nil, "token: "+token), "insecure-skip-tls-verify: true", "", 1))
			},
		},
		{
			"another name", `not elsewhere; see whether the CA`, podsource.ErrUntrusted,
			func(s *podsource.APIServer, _ string, server *httptest.Server) {
				rewrite(s.Kubeconfig, strings.Replace(kubeconfig(server.URL, server, "token: "+token),
					"    server:", "    tls-server-name: elsewhere\n    server:", 1))
			},
		},
		{
			"no kubeconfig", "no such file or directory; the node agent writes it: see whether its pod runs", fs.ErrNotExist,
			func(s *podsource.APIServer, dir string, _ *httptest.Server) {
				s.Kubeconfig = filepath.Join(dir, "kubeconfig")
			},
		},
		{
			"kubeconfig not understood", `kubeconfig: line 1: it is not "key: value"; the node agent writes it: let it`, podsource.ErrKubeconfig,
			func(s *podsource.APIServer, _ string, _ *httptest.Server) { rewrite(s.Kubeconfig, token) },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apiServer(t, unused)
			source := sourceFor(t, server)
			test.change(&source, t.TempDir(), server)
			_, err := source.Pod(t.Context(), web)
			wantFailure(t, err, test.kind, test.want)
		})
	}
}

// rewrite replaces what writeFile wrote.
func rewrite(path, content string) {
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		panic(err)
	}
}

func TestNamesThatWouldAskForSomethingElse(t *testing.T) {
	t.Parallel()
	server := apiServer(t, func(http.ResponseWriter, *http.Request, int) { t.Error("the server was asked") })
	source := sourceFor(t, server)
	for _, ref := range []podsource.Ref{
		{},
		{Namespace: "shop"},
		{Name: "web-0"},
		{Namespace: "shop/pods/a?b=", Name: "web-0"},
		{Namespace: "shop", Name: ".."},
		{Namespace: "shop", Name: "../secrets/x"},
		{Namespace: "shop", Name: "web%2f0"},
		{Namespace: "Shop", Name: "web-0"},
		{Namespace: "shop", Name: strings.Repeat("a", 254)},
	} {
		_, err := source.Pod(t.Context(), ref)
		wantFailure(t, err, podsource.ErrRef, "see its log")
	}
}

func TestRetriesUntilThePodIsThere(t *testing.T) {
	t.Parallel()
	pod := string(injected(t))
	for _, test := range []struct {
		name  string
		first []func(http.ResponseWriter, *http.Request, int)
	}{
		{"not yet there", []func(http.ResponseWriter, *http.Request, int){answer(http.StatusNotFound, ""), answer(http.StatusNotFound, "")}},
		{"its predecessor", []func(http.ResponseWriter, *http.Request, int){answer(http.StatusOK, strings.Replace(pod, uid, "old", 1))}},
		{"server starts", []func(http.ResponseWriter, *http.Request, int){
			answer(http.StatusBadGateway, ""), answer(http.StatusServiceUnavailable, ""), answer(http.StatusTooManyRequests, ""),
			answer(http.StatusNotFound, ""), answer(http.StatusNotFound, ""), answer(http.StatusInternalServerError, ""),
			answer(http.StatusNotFound, ""), answer(http.StatusNotFound, ""), answer(http.StatusNotFound, ""),
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var failures []int
			source := sourceFor(t, apiServer(t, func(w http.ResponseWriter, r *http.Request, call int) {
				if call <= len(test.first) {
					test.first[call-1](w, r, call)
					return
				}
				answer(http.StatusOK, pod)(w, r, call)
			}))
			source.Backoff = func(n int) time.Duration { failures = append(failures, n); return 0 }
			got, err := source.Pod(t.Context(), web)
			if err != nil || got.UID != uid {
				t.Fatalf("got %+v, %v", got, err)
			}
			for i, n := range failures {
				if n != i+1 {
					t.Errorf("asked for pauses after %v failures", failures)
				}
			}
			if len(failures) != len(test.first) {
				t.Errorf("paused %d times, want %d", len(failures), len(test.first))
			}
		})
	}
}

func TestTokenThatIsRenewedMeanwhile(t *testing.T) {
	t.Parallel()
	pod := string(injected(t))
	var path string
	server := apiServer(t, nil)
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer renewed" {
			answer(http.StatusOK, pod)(w, r, 0)
			return
		}
		if err := os.WriteFile(path, []byte(kubeconfig(server.URL, server, "token: renewed")), 0o600); err != nil {
			t.Error(err)
		}
		answer(http.StatusUnauthorized, "")(w, r, 0)
	})
	source := sourceFor(t, server)
	path = source.Kubeconfig
	if _, err := source.Pod(t.Context(), web); err != nil {
		t.Error(err)
	}
}

func TestServerThatHangs(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	server := apiServer(t, func(http.ResponseWriter, *http.Request, int) { <-over })
	t.Cleanup(func() { close(over) })
	t.Run("each request ends", func(t *testing.T) {
		t.Parallel()
		source := sourceFor(t, server)
		source.CallTimeout = 20 * time.Millisecond
		_, err := source.Pod(t.Context(), web)
		failure := wantFailure(t, err, podsource.ErrTimeout, "no answer within 20ms for one request: context deadline exceeded (asked 10 times)")
		if failure.Attempts != 10 {
			t.Errorf("asked %d times", failure.Attempts)
		}
	})
	t.Run("all ends", func(t *testing.T) {
		t.Parallel()
		source := sourceFor(t, server)
		source.Timeout = 30 * time.Millisecond
		_, err := source.Pod(t.Context(), web)
		wantFailure(t, err, podsource.ErrTimeout, "no answer within 30ms in all: context deadline exceeded; check the API server's health")
	})
	t.Run("caller ends", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the runtime went away"))
		_, err := sourceFor(t, server).Pod(ctx, web)
		wantFailure(t, err, podsource.ErrTimeout, "the runtime went away")
	})
}

func TestServerThatDrips(t *testing.T) {
	t.Parallel()
	source := sourceFor(t, apiServer(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		for {
			if _, err := io.WriteString(w, " "); err != nil || r.Context().Err() != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
		}
	}))
	source.Timeout = 50 * time.Millisecond
	_, err := source.Pod(t.Context(), web)
	wantFailure(t, err, podsource.ErrTimeout, "no answer within 50ms in all")
}

func TestPauseEndsWithTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	source := sourceFor(t, apiServer(t, answer(http.StatusServiceUnavailable, "")))
	source.Timeout = 2 * time.Hour
	source.Backoff = func(int) time.Duration {
		cancel()
		return time.Hour
	}
	_, err := source.Pod(ctx, web)
	wantFailure(t, err, podsource.ErrServer, "status 503; check the API")
}

func TestFilesBesideTheKubeconfig(t *testing.T) {
	t.Parallel()
	pod := string(injected(t))
	server := apiServer(t, func(w http.ResponseWriter, r *http.Request, call int) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			t.Errorf("got header %v", r.Header)
		}
		answer(http.StatusOK, pod)(w, r, call)
	})
	source := sourceFor(t, server)
	dir := t.TempDir()
	source.Kubeconfig = filepath.Join(dir, "kubeconfig")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	document := strings.Replace(kubeconfig(server.URL, nil, "tokenFile: token\n    token: stale"),
		"insecure-skip-tls-verify: true", "certificate-authority: ca.crt", 1)
	for name, content := range map[string]string{"kubeconfig": document, "token": token + "\n", "ca.crt": string(certificate)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := source.Pod(t.Context(), web); err != nil {
		t.Error(err)
	}
}
