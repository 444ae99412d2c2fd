// SPDX-License-Identifier: Apache-2.0

package ambientplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/plugin"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
)

// The reasons for which the plugin leaves a pod alone in ambient mode.
const (
	// ReasonEnrolled: the agent has enrolled the pod. The detail has the agent's own reason.
	ReasonEnrolled interception.Reason = "ambient"
	// ReasonProxy: the pod is one of the proxy's own.
	ReasonProxy interception.Reason = "ambient-proxy"
)

const (
	// socketName is the agent's socket in the run directory.
	socketName = "pluginevent.sock"
	// defaultProxyName is the default of ambient_proxy_name.
	defaultProxyName = "ztunnel"
)

// Hook decides about the pods of ambient mode. The zero value is ready to use.
type Hook struct {
	// UserAgent names the plugin to the API server; "meshcni" if empty.
	UserAgent string
	// Backoff says how long to wait after the given number of failures, before the hook asks the
	// agent or the API server again. If nil, it is a twentieth of a second for an agent that may be
	// handing over, later a second, and podsource's own pauses for the API server.
	Backoff func(failures int) time.Duration
}

// Before decides about a pod as Before of [plugin.Options]: the second result is true if the pod is
// enrolled or the proxy's own. Without ambient_enabled it decides nothing. In CHECK, a pod of the
// mesh that is not as the agent wants it is an error. Errors are [*plugin.Error].
func (h Hook) Before(ctx context.Context, r plugin.Request) (_ interception.Decision, decided bool, _ error) {
	if !r.Config.AmbientEnabled {
		return interception.Decision{}, false, nil
	}
	if isProxy(r.Config, r.Pod.Namespace, r.Pod.Name) {
		return interception.Decision{Reason: ReasonProxy, Detail: r.Pod.String()}, true, nil
	}
	policy, err := policyOf(r.Config)
	if err != nil {
		return interception.Decision{}, false, settingFailure(err)
	}
	if hasSidecar(r) {
		return interception.Decision{}, false, nil
	}
	socket := filepath.Join(r.Config.RunDir, socketName)
	if r.Command != "ADD" {
		return check(ctx, r, socket)
	}
	namespace, err := r.OpenNetns()
	if err != nil {
		return interception.Decision{}, false, err
	}
	defer namespace.Close() //nolint:errcheck // nothing is written through it
	addresses, err := r.Addresses()
	if err != nil {
		return interception.Decision{}, false, err
	}
	a := addition{
		Hook: h, request: r, policy: policy, namespace: namespace.File(), socket: socket,
		pod: podOf(r, addresses),
	}
	return a.decide(ctx)
}

// addition is the ADD of a pod that may be in the ambient mesh.
type addition struct {
	Hook
	request   plugin.Request
	policy    ambient.Policy
	pod       event.Pod
	namespace *os.File
	socket    string
}

// decide has the agent decide.
func (a *addition) decide(ctx context.Context) (_ interception.Decision, decided bool, _ error) {
	decision, err := event.Enrol(ctx, a.socket, a.pod, a.namespace)
	if isReplaced(err) {
		decision, err = a.askAgain(ctx, err, handOver())
	}
	if isUnanswered(err) {
		return a.decideAlone(ctx, err)
	}
	return a.outcome(ctx, decision, err)
}

// outcome is what follows from an answer of the agent.
func (a *addition) outcome(ctx context.Context, decision interception.Decision, err error) (_ interception.Decision, decided bool, _ error) {
	switch {
	case err != nil:
		return interception.Decision{}, false, a.failure(ctx, err)
	case !decision.Capture:
		a.request.Log.Debug("pod is not in the ambient mesh", "reason", decision.String())
		return interception.Decision{}, false, nil
	}
	return interception.Decision{Reason: ReasonEnrolled, Detail: decision.String(), OfPod: decision.OfPod}, true, nil
}

// policyOf returns which pods are in the ambient mesh, by the function that the agent's program
// uses, too.
func policyOf(c pluginconf.Config) (ambient.Policy, error) {
	settings := ambientconf.Config{ExcludeNamespaces: c.ExcludeNamespaces, ProxyNamespace: proxyNamespace(c)}
	if string(c.EnablementSelectors) != "null" {
		settings.Selectors = c.EnablementSelectors
	}
	return settings.Policy()
}

func proxyNamespace(c pluginconf.Config) string {
	return cmp.Or(c.AmbientProxyNamespace, c.PodNamespace)
}

func proxyName(c pluginconf.Config) string { return cmp.Or(c.AmbientProxyName, defaultProxyName) }

// isProxy recognises the pods of the proxy's DaemonSet by its name, '-' and a suffix. Without a
// namespace it recognises none.
func isProxy(c pluginconf.Config, namespace, name string) bool {
	suffix, ok := strings.CutPrefix(name, proxyName(c)+"-")
	return ok && suffix != "" && namespace != "" && namespace == proxyNamespace(c)
}

// hasSidecar recognises a pod with a sidecar, if the runtime passes annotations.
func hasSidecar(r plugin.Request) bool {
	_, has := r.Config.RuntimeConfig.PodAnnotations[ambient.IstioPolicy().SidecarAnnotation]
	return has
}

// podOf returns the pod as the agent is told of it. For a static pod the UID is the runtime's, and
// the agent knows to which mirror it belongs.
func podOf(r plugin.Request, addresses []netip.Addr) event.Pod {
	return event.Pod{
		Namespace: r.Pod.Namespace, Name: r.Pod.Name, UID: r.Pod.UID, Container: r.Attachment.ContainerID, Addresses: addresses,
	}
}

// Deleted tells the agent that a sandbox ends, as Deleted of [plugin.Options]: the agent then takes
// the pod's addresses out of the host's sets before the plugins after this one give them to another
// pod. It is one request, and none for a pod that Before would not ask about. An agent that is away
// is no error, because it learns of the pod's end from its feed.
func (h Hook) Deleted(ctx context.Context, r plugin.Request) error {
	if !r.Config.AmbientEnabled || isProxy(r.Config, r.Pod.Namespace, r.Pod.Name) || hasSidecar(r) {
		return nil
	}
	addresses, err := r.Addresses()
	if err != nil {
		r.Log.Debug("the agent of ambient mode is not told which addresses the pod had", "error", err.Error())
	}
	var namespace *os.File
	if open, err := r.OpenNetns(); err == nil { // otherwise the container tells which sandbox it is
		defer open.Close() //nolint:errcheck // nothing is written through it
		namespace = open.File()
	}
	held, err := event.Leave(ctx, filepath.Join(r.Config.RunDir, socketName), podOf(r, addresses), namespace)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	if err == nil {
		r.Log.Debug("the agent of ambient mode was told that the sandbox ends", "held", held)
	}
	return err
}

// check looks at what the agent has observed of a pod, and changes nothing. A pod that the agent
// does not enrol, or that is checked while the agent is away, goes on.
func check(ctx context.Context, r plugin.Request, socket string) (_ interception.Decision, decided bool, _ error) {
	of := event.Selection{UID: r.Pod.UID}
	if of.UID == "" {
		of = event.Selection{Namespace: r.Pod.Namespace, Name: r.Pod.Name}
	}
	node, err := event.Pods(ctx, socket, of)
	if err != nil {
		r.Log.Warn("it is not known whether the pod is in the ambient mesh, and not checked", "error", err.Error())
		return interception.Decision{}, false, nil
	}
	for _, pod := range node.Pods {
		if !pod.Eligible {
			continue
		}
		if isCaptured(pod) && pod.Step != "" {
			r.Log.Warn("the pod's connections are captured, and its agent is not done with it", "step", pod.Step, "error", waiting(pod))
		} else if wrong := difference(pod); wrong != nil {
			return interception.Decision{}, false, &plugin.Error{
				Code: codeDrift, Step: "compare pod " + r.Pod.String() + " with what the agent of ambient mode observes", Err: wrong,
				Remedy: "the agent corrects it by itself: if it stays so, see install-cni ambient status " + r.Pod.String(),
			}
		}
		return interception.Decision{Reason: ReasonEnrolled, Detail: string(pod.Reason), OfPod: true}, true, nil
	}
	return interception.Decision{}, false, nil
}

// rulesPlanned is how the agent tells that a pod's rules are as planned.
const rulesPlanned = "planned"

// isCaptured reports whether no new connection of the pod bypasses the mesh, whatever its agent
// waits for: the proxy, or the pod's turn to move from another form of capture. A runtime may make
// a pod anew whose CHECK fails, which helps nothing meanwhile.
func isCaptured(pod event.PodState) bool {
	return pod.Managed && pod.Rules == rulesPlanned && pod.InSets
}

// waiting says why a step is not done.
func waiting(pod event.PodState) string { return cmp.Or(pod.Error, pod.Refusal, "it takes its time") }

// difference says what is not as wanted of a pod of the mesh; nil if all is.
func difference(pod event.PodState) error {
	switch {
	case pod.Step != "":
		return fmt.Errorf("step %q is not done: %s", pod.Step, waiting(pod))
	case !pod.Managed:
		return errors.New("the agent has not begun with it")
	case pod.Rules != rulesPlanned:
		return fmt.Errorf("its rules are %q, and should be %q", pod.Rules, rulesPlanned)
	}
	return nil
}
