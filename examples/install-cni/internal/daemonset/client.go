// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/apiserver"
)

// Client is which DaemonSet to ask for, and the API server and account to use. It reads the
// account's files for each request, since the kubelet renews them.
type Client struct {
	apiserver.Account
	// Namespace and Name are the DaemonSet's.
	Namespace, Name string
	// Node is the name of this node; empty if it is not known, or does not matter.
	Node string
	// Memory is what the server has answered so far. Only [Client.Delete] does not need it.
	Memory *Memory
	// Now is the clock; nil stands for time.Now.
	Now func() time.Time
	// Pause is how long to wait before asking again; 0 stands for a second.
	Pause time.Duration
}

// The kinds of objects in the API server's answers.
const (
	kindDaemonSet = "DaemonSet"
	kindNamespace = "Namespace"
	kindNode      = "Node"
	kindStatus    = "Status"
)

// answer has the fields that are read from a DaemonSet, a Namespace, a Node or a Status.
type answer struct {
	apiserver.Answer `json:"-"`

	Kind     string `json:"kind"`
	Metadata struct {
		Name              string            `json:"name"`
		UID               string            `json:"uid"`
		Labels            map[string]string `json:"labels"`
		DeletionTimestamp string            `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Template struct {
			Spec selection `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
	Reason  string `json:"reason"`
	Details struct {
		Name string `json:"name"`
	} `json:"details"`
}

// isMissing reports whether the API server itself, not a proxy, answered that there is no object of
// that name.
func (a answer) isMissing(name string) bool {
	return a.Status == http.StatusNotFound && a.Kind == kindStatus && a.Reason == "NotFound" && a.Details.Name == name
}

// unverified returns why the answers may not come from the API server; empty if they do.
func (c Client) unverified() string {
	host := c.Server.Hostname()
	switch {
	case c.Server.Scheme != "https" && host != "localhost" && !net.ParseIP(host).IsLoopback():
		return "the daemon asks it over plain http, and any machine on the way could answer for it"
	case c.Server.Scheme == "https" && c.Insecure:
		return "its certificate isn't verified (skip-tls-verify), and any machine on the way could answer for it"
	}
	return ""
}

func (c Client) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

type object struct {
	kind, name string
	path       []string
}

func (c Client) daemonSet() object {
	return object{kindDaemonSet, c.Name, []string{"apis", "apps", "v1", "namespaces", c.Namespace, "daemonsets", c.Name}}
}

func (c Client) node() object {
	return object{kindNode, c.Node, []string{"api", "v1", "nodes", c.Node}}
}

func (c Client) namespace() object {
	return object{kindNamespace, c.Namespace, []string{"api", "v1", "namespaces", c.Namespace}}
}

// get sends one request for an object, and remembers the answer.
func (c Client) get(ctx context.Context, about object) (answer, error) {
	a, err := c.send(ctx, about, http.MethodGet, "")
	if err == nil {
		c.Memory.note(a, c.now())
	}
	return a, err
}

func (c Client) send(ctx context.Context, about object, method, body string) (answer, error) {
	got, err := c.Send(ctx, method, about.path, "application/json", body)
	if err != nil {
		return answer{}, err
	}
	a, err := about.read(method, got)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", c.Server.Host, err)
	}
	return a, nil
}

// read parses the API server's answer: the object, or for a deletion possibly a Status.
func (o object) read(method string, got apiserver.Answer) (answer, error) {
	a := answer{Answer: got}
	err := json.Unmarshal(got.Body, &a)
	isIt := a.Kind == o.kind && a.Metadata.Name == o.name
	done := a.Status == http.StatusOK || a.Status == http.StatusAccepted
	if method == http.MethodDelete && a.Kind == kindStatus {
		isIt = done
	}
	if isIt != done || (isIt && err != nil) {
		return answer{}, errors.Join(err, fmt.Errorf("answers %d with something other than the %s %s", a.Status, o.kind, o.name))
	}
	return a, nil
}

// ErrRefused is in the error of [Client.Look] for an answer that stays the same until the operator
// changes a role or a setting.
var ErrRefused = errors.New("the API server doesn't say whether the DaemonSet exists")

// Interval is how often [Client.Look] should be called, in addition to each renewal of the token.
const Interval = 10 * time.Minute

// Look asks for the DaemonSet, and for its namespace until that is known, to fill the memory. The
// error is what would keep [Client.Deleted] from a result.
func (c Client) Look(ctx context.Context) error {
	if why := c.unverified(); why != "" {
		return fmt.Errorf("%w: %s", ErrRefused, why)
	}
	if err := c.lookFor(ctx, c.daemonSet(), "none has that name; check pod-namespace and agent-name"); err != nil {
		return err
	}
	if c.Memory.sawNamespace() {
		return nil
	}
	return c.lookFor(ctx, c.namespace(), "none has that name; check pod-namespace")
}

func (c Client) lookFor(ctx context.Context, o object, missing string) error {
	a, err := c.get(ctx, o)
	switch {
	case err != nil:
		return err
	case a.Status == http.StatusOK:
		return nil
	case a.isMissing(o.name):
		return fmt.Errorf("%w: %s %s: %s", ErrRefused, o.kind, o.name, missing)
	case a.Status == http.StatusForbidden:
		return fmt.Errorf("%w: the service account may not get the %s %s; allow it by a role, or set uninstall-on-deletion to false",
			ErrRefused, o.kind, o.name)
	}
	return fmt.Errorf("%s %s: %w", o.kind, o.name, a.Unexpected())
}
