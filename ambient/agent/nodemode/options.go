// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/interception"
)

// Options are what an [Agent] works with. Required are Dataplane, Sets, Finder, Feed, Annotator,
// State, Owner, Policy with a proxy, Vocabulary, Numbers and Host.
type Options struct {
	// Dataplane applies the plans, and Sets edits the sets of [ambient.NodePlan]. If Dataplane is an
	// [agent.Tallier], other programs' changes are noticed as with [agent.Options].Dataplane.
	Dataplane interception.Dataplane
	Sets      agent.SetEditor
	// Finder finds the namespace of the proxy's pod.
	Finder agent.Finder
	// Feed tells of pods and namespaces. Of the proxy's pods it has to tell Created and Ready.
	Feed agent.Feed
	// Annotator gets the status of each enrolled pod.
	Annotator agent.Annotator
	// State is the absolute path of a file for this agent alone, in a directory that exists. It has
	// to end with the node's boot, as files in /run do.
	State string
	// Owner owns the rules, on the host and in the proxy's namespace.
	Owner interception.Owner
	// Policy selects the pods, and names the proxy.
	Policy ambient.Policy
	// Vocabulary has the name of the status annotation. Annotations that change what is captured of
	// a pod have no effect in this mode: each is a warning of the pod.
	Vocabulary ambient.Vocabulary
	// Numbers are the marks, tables, names and ports that the proxy and the plans agree on.
	Numbers ambient.NodeNumbers
	// Host is the node's own namespace. The caller closes it.
	Host *interception.Netns
	// Way is the kind of the wires to the proxy.
	Way ambient.Way
	// DNS sends queries of enrolled pods to the proxy.
	DNS bool
	// Closed captures pods before the proxy serves them, as [ambient.Wanted] describes it.
	Closed bool
	// TakeOver are dataplanes that read what other programs have on the host, with their
	// Options.Foreign. The agent ignores one whose programs are not installed
	// ([interception.ErrUnsupported]). With the others it finds programs that use bits of its marks
	// ([ErrClash]). If Istio 1.18 to 1.20 has rules on the host when the agent starts, it removes
	// these with their routes, policy rules and tunnels, once all pods of the mesh are in its own
	// sets and connections that the former rules have captured have ended. Until then both stand,
	// which needs other Numbers ([ambient.BesideIstioNodeNumbers]). Rules that some program has
	// changed stay, with an error that wraps [agent.ErrUpstream]. Without dataplanes (nil) the
	// agent looks for none.
	TakeOver []agent.ForeignDataplane
	// DrainTimeout is how long captured connections may go on when all pods are withdrawn; 30 s if
	// zero.
	DrainTimeout time.Duration
	// Round is how often everything is looked at although nothing has happened; a minute if zero.
	Round time.Duration
	// ListenerRound is how often the proxy's listeners are looked for; 2 s if zero.
	ListenerRound time.Duration
	// SettingsRound is how often at most a setting of the plan's interfaces, such as rp_filter, is
	// written because another program has changed it; a minute if zero. A setting that has to wait
	// is an error that wraps [ErrSettings]. It is also how often the agent looks whether a clash is
	// over beside which a proxy serves ([ErrClash]).
	SettingsRound time.Duration
	// WithoutNotices makes New go on without CAP_NET_BROADCAST, and is called with the kernel's
	// refusal. What other programs change is then found in rounds of 5 s at most. Without it (nil)
	// New fails.
	WithoutNotices func(error)
	// WithoutProbes is called when the agent cannot see by packets whether connections of pods are
	// marked ([ErrMark]), with the reason. If New has no CAP_NET_RAW on the host, the agent goes by
	// the sets and rules. If a packet has not come back, as with rp_filter=1 in all interfaces, it
	// does so until the next one, after a minute at most. It may be nil.
	WithoutProbes func(error)
	// Observe is called when a step of a pod is waited for or has failed, when the pod is as
	// wanted, and at last when the agent does not deal with it any more. It may be nil.
	Observe func(agent.Pod)
	// ObserveHost is called when the host's rules, or those of the proxy's namespace, cannot be
	// kept, or the former cannot be counted ([agent.ErrUncounted]), or no proxy can be had, and with
	// nil when they can again. The agent goes on trying by itself. It may be nil.
	ObserveHost func(error)
	// ObserveProxy is called when the proxy that gets new connections has its listeners, and when it
	// no longer has them. It may be nil.
	ObserveProxy func(listens bool)
	// Held reports whether a pod, by its UID, is captured in another form of capture, and has to
	// wait for its turn to be captured in this one ([ambient.StepAwaitTurn]). It must not wait, and
	// not call the agent. [Agent.Look] tells of a change. If it is nil, or the agent retires, no pod
	// is held.
	Held func(uid string) bool
	// Retiring does what it does in [agent.Options]. A retiring agent keeps the pods that have members
	// when it starts.
	Retiring bool
	// InPod reports whether a pod, by its UID, is captured in its own namespace, too, or is about to
	// be, with a proxy that listens there: what comes to that proxy's tunnels is left alone. It must
	// not wait, and not call the agent. [Agent.Look] tells of a change. If nil, and after
	// [Agent.Alone], no pod is.
	InPod func(uid string) bool
	// Count is called for what metrics count. It must not wait, and not call the agent. It may be
	// nil.
	Count func(agent.Count)
}

// ErrOptions is wrapped by the error about options that are missing.
var ErrOptions = errors.New("invalid options of an ambient agent that captures on the node")

func (o *Options) validate() error {
	for name, missing := range map[string]bool{
		"Dataplane": o.Dataplane == nil, "Sets": o.Sets == nil, "Finder": o.Finder == nil, "Feed": o.Feed == nil, "Annotator": o.Annotator == nil,
		"an absolute path as State": !filepath.IsAbs(o.State), "Owner": o.Owner == "", "Vocabulary": o.Vocabulary.Name == "", "Host": o.Host == nil,
		"the proxy's namespace and labels in Policy": o.Policy.ProxyNamespace == "" || len(o.Policy.ProxyLabels) == 0,
	} {
		if missing {
			return fmt.Errorf("%w: they are without %s", ErrOptions, name)
		}
	}
	return errors.Join(o.Numbers.Validate(), o.Policy.Validate())
}

func (o *Options) setDefaults() {
	o.Round, o.ListenerRound = cmp.Or(o.Round, time.Minute), cmp.Or(o.ListenerRound, 2*time.Second)
	o.SettingsRound = cmp.Or(o.SettingsRound, time.Minute)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 30*time.Second)
	if o.WithoutProbes == nil {
		o.WithoutProbes = func(error) {}
	}
	if o.Observe == nil {
		o.Observe = func(agent.Pod) {}
	}
	if o.ObserveHost == nil {
		o.ObserveHost = func(error) {}
	}
	if o.ObserveProxy == nil {
		o.ObserveProxy = func(bool) {}
	}
	if o.Count == nil {
		o.Count = func(agent.Count) {}
	}
}

// count tells of something that has happened, unless it was not at all.
func (o *Options) count(what agent.Counted, of string, times int) {
	if times > 0 {
		o.Count(agent.Count{What: what, Of: of, Times: times})
	}
}
