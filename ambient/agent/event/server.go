// SPDX-License-Identifier: Apache-2.0

package event

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/unixsocket"
)

// Enroller enrols new pods. An adapter of agent.Agent is one.
type Enroller interface {
	// Enrol enrols a pod, if that is wanted, and returns the decision once the pod is as wanted. It
	// takes ownership of the file, which it verifies to be the pod's network namespace. If the
	// context ends before, the error says what is waited for. An [*Error] chooses the code of the
	// answer.
	Enrol(ctx context.Context, pod Pod, namespace *os.File) (interception.Decision, error)
}

// Options are the settings of a [Server].
type Options struct {
	// Enroller enrols the pods. It is needed.
	Enroller Enroller
	// Leaver gives up pods whose sandbox ends. If it is nil, the server does not know that request.
	Leaver Leaver
	// Keeper answers operators. If it is nil, the server knows no paths but those of plugins.
	Keeper Keeper
	// HandOver ends the work of this process, because another one takes its place that was started
	// at a time since the boot of the node. It does not wait. An error refuses: [CodeRefused] if the
	// other one is not the newer one. If it is nil, no other process can take over.
	HandOver func(started time.Duration) error
	// HostRoot is where the host's file system is mounted, for the paths that Istio's plugin sends;
	// "/" if empty.
	HostRoot string
	// Timeout is the longest time for a request, and that of one that does not say how long its sender
	// waits; 30 s if zero. Istio's plugin waits 5 s: its requests have a little less.
	Timeout time.Duration
	// Observe is told of each request and of each connection that was refused (then the status is 0),
	// from several goroutines. It may be nil.
	Observe func(Outcome)
}

// Outcome is how a request ended.
type Outcome struct {
	// Path is the path of the request.
	Path string
	// Pod is the pod, as far as the request names one.
	Pod Pod
	// Status is the status of the answer (RFC 9110), or 0 for a connection that was refused.
	Status int
	// Decision is the agent's.
	Decision interception.Decision
	// Err is why the request failed.
	Err error
	// Duration is how long it took.
	Duration time.Duration
}

// istioTimeout is a little less than the time that Istio's plugin waits (cni/pkg/plugin of
// istio.io/istio).
const istioTimeout = 4500 * time.Millisecond

// readTimeout is how long a request may take to come in. The plugin writes it at once.
const readTimeout = 5 * time.Second

// Server takes the plugin's requests. Create it with [Listen].
type Server struct {
	options  Options
	listener net.Listener
}

// Listen makes the socket, in place of a former one, with mode 0600. Its directory must belong to
// root or to this process's user, and be writable by no other user. The caller then calls
// [Server.Serve].
func Listen(ctx context.Context, path string, o Options) (*Server, error) {
	if o.Enroller == nil {
		return nil, errors.New("event socket: options without Enroller")
	}
	o.HostRoot, o.Timeout = cmp.Or(o.HostRoot, "/"), cmp.Or(o.Timeout, 30*time.Second)
	if o.Observe == nil {
		o.Observe = func(Outcome) {}
	}
	socket, err := unixsocket.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("event socket: %w", err)
	}
	return &Server{o, listener{socket, func(err error) { o.Observe(Outcome{Err: err}) }}}, nil
}

// Serve answers requests until the context ends: requests that wait are then answered, with the
// errors of their enrolment. The file of the socket stays.
func (s *Server) Serve(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/enrol", s.enrol)
	mux.HandleFunc("POST /cmdadd", s.cmdadd)
	if s.options.Leaver != nil {
		mux.HandleFunc("POST /v1/leave", s.leave)
	}
	if s.options.Keeper != nil {
		mux.HandleFunc("GET /v1/pods", s.pods)
		mux.HandleFunc("POST /v1/withdraw", s.withdraw)
		mux.HandleFunc("POST /v1/readmit", s.readmit)
	}
	if s.options.HandOver != nil {
		mux.HandleFunc("POST /v1/handover", s.handOver)
	}
	server := http.Server{
		Handler: mux, ReadHeaderTimeout: readTimeout, MaxHeaderBytes: maxBody,
		ConnContext: withConnection, BaseContext: func(net.Listener) context.Context { return ctx },
	}
	server.SetKeepAlivesEnabled(false)
	stop := context.AfterFunc(ctx, func() { _ = s.listener.Close() }) // it ends Serve
	defer stop()
	err := server.Serve(s.listener)
	if ctx.Err() == nil {
		return fmt.Errorf("event socket: %w", err)
	}
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	if err := server.Shutdown(rest); err != nil {
		return fmt.Errorf("event socket: end the requests that wait: %w", err)
	}
	return nil
}

// enrol answers /v1/enrol.
func (s *Server) enrol(w http.ResponseWriter, r *http.Request) {
	s.answer(w, r, func(o *Outcome, body []byte) (*os.File, time.Duration, error) {
		pod, timeout, err := parseRequest(body)
		o.Pod = pod
		namespace := connectionOf(r.Context()).take()
		if err == nil && namespace == nil {
			err = errors.New("the request carries no descriptor of a network namespace")
		}
		return namespace, timeout, err
	}, func(o Outcome) {
		answer := answerOf(o.Decision)
		if o.Err != nil {
			answer.Error = errorOf(o.Err)
		}
		writeJSON(w, o.Status, answer)
	})
}

// cmdadd answers a request of Istio's plugin, which expects every pod that it asks about to be
// captured.
func (s *Server) cmdadd(w http.ResponseWriter, r *http.Request) {
	s.answer(w, r, func(o *Outcome, body []byte) (*os.File, time.Duration, error) {
		pod, path, err := parseIstio(body)
		o.Pod = pod
		if err != nil {
			return nil, 0, err
		}
		namespace, err := os.Open(filepath.Join(s.options.HostRoot, path))
		return namespace, istioTimeout, err
	}, func(o Outcome) {
		switch {
		case o.Err != nil:
			http.Error(w, o.Err.Error(), o.Status)
		case !o.Decision.Capture:
			http.Error(w, fmt.Sprintf("pod %s is not enrolled: %s", o.Pod, o.Decision), http.StatusInternalServerError)
		}
	})
}

// answer reads a request, has the pod enrolled, and writes the answer.
func (s *Server) answer(
	w http.ResponseWriter, r *http.Request, read func(*Outcome, []byte) (*os.File, time.Duration, error), write func(Outcome),
) {
	start := time.Now()
	o := Outcome{Path: r.URL.Path, Status: http.StatusOK}
	body, err := readBody(w, r)
	var namespace *os.File
	var timeout time.Duration
	if err == nil {
		namespace, timeout, err = read(&o, body)
	}
	if err != nil {
		if namespace != nil {
			_ = namespace.Close() // nothing was written
		}
		o.Status, o.Err = http.StatusBadRequest, &Error{CodeRequest, fmt.Sprintf("invalid request: %v", err)}
	} else {
		ctx, cancel := context.WithTimeout(r.Context(), min(cmp.Or(timeout, s.options.Timeout), s.options.Timeout))
		o.Decision, o.Err = s.options.Enroller.Enrol(ctx, o.Pod, namespace)
		cancel()
		if o.Err != nil {
			o.Status = http.StatusInternalServerError
		}
	}
	write(o)
	o.Duration = time.Since(start)
	s.options.Observe(o)
}

// readBody reads the body of a request within the time for it. The connection has no deadline then:
// the server goes on reading, to learn that the plugin has gone.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	controller := http.NewResponseController(w)
	if err := controller.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
		return nil, err
	}
	body, err := readAll(r.Body)
	return body, errors.Join(err, controller.SetReadDeadline(time.Time{}))
}

// errorOf returns the error of an answer.
func errorOf(err error) *Error {
	if own := (*Error)(nil); errors.As(err, &own) {
		return &Error{own.Code, err.Error()}
	}
	return &Error{CodeUnfinished, err.Error()}
}
