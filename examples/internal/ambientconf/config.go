// SPDX-License-Identifier: Apache-2.0

package ambientconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// The owners of the rules of ambient mode. Each form of capture has its own, so that both can stand
// on a node while its pods move from one to the other.
const (
	// Owner owns the rules of mode in-pod, in the pods and on the host.
	Owner interception.Owner = "istio-ambient"
	// NodeOwner owns the rules of mode node, on the host and in the proxy's namespace.
	NodeOwner interception.Owner = "istio-node"
)

// Owners returns both owners.
func Owners() []interception.Owner { return []interception.Owner{Owner, NodeOwner} }

// The values of [Config.Mode].
const (
	ModeInPod = "in-pod"
	ModeNode  = "node"
)

// Config are the settings of ambient mode. The zero value has Istio's defaults without DNS capture.
type Config struct {
	// Mode is where pods are captured: "in-pod", in their own namespaces, or "node", in the node's.
	// Empty is in-pod. With node, Closed is as in-pod, existing connections stay as they are, and
	// NoBranches is for pods that move from the other mode.
	Mode string `json:"mode,omitempty"`
	// Way is the kind of the wires between the node's namespace and the proxy's: "veth" or "vxlan".
	// Empty is veth. It is for Mode node alone.
	Way string `json:"way,omitempty"`
	// Selectors select the pods, as [ambient.ParseSelectors] reads them; Istio's if empty.
	Selectors json.RawMessage `json:"selectors,omitempty"`
	// ExcludeNamespaces are the namespaces whose pods are left alone.
	ExcludeNamespaces []string `json:"excludeNamespaces,omitempty"`
	// ProxyNamespace and ProxyLabels identify the node's proxy. Without ProxyLabels it is the app
	// ztunnel.
	ProxyNamespace string            `json:"proxyNamespace,omitempty"`
	ProxyLabels    map[string]string `json:"proxyLabels,omitempty"`
	// DNS captures the pods' queries, too.
	DNS bool `json:"dns,omitempty"`
	// Closed captures pods before the proxy serves them.
	Closed bool `json:"closed,omitempty"`
	// CaptureExisting captures the connections that a running pod has when it is enrolled.
	CaptureExisting bool `json:"captureExisting,omitempty"`
	// NoHost leaves the host without rules for probes.
	NoHost bool `json:"noHost,omitempty"`
	// NoBranches leaves the host without policy rules for pods that have routing tables of their own,
	// such as those of AWS with security groups ([ambient.Branch]).
	NoBranches bool `json:"noBranches,omitempty"`
	// Dataplane is "nftables", "iptables", or empty for the first that this machine can use.
	Dataplane string `json:"dataplane,omitempty"`
	// DrainTimeout is how long a withdrawn pod may keep connections through the proxy, such as "30s";
	// the agent's own time if empty. With Mode node it is about the withdrawal of all pods alone: a
	// single one keeps them to their end.
	DrainTimeout string `json:"drainTimeout,omitempty"`
}

// Parse reads settings. Unknown ones are errors, so that no program ignores what another one sets.
func Parse(text string) (Config, error) {
	var c Config
	decoder := json.NewDecoder(bytes.NewBufferString(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&c)
	if err == nil && decoder.Decode(&struct{}{}) != io.EOF {
		err = errors.New("there is something after the object")
	}
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		return Config{}, fmt.Errorf("settings of ambient mode: %w", err)
	}
	return c, nil
}

// Validate returns an error if the settings contradict each other, or one of them is unknown or
// cannot be read.
func (c Config) Validate() error {
	_, policy := c.Policy()
	_, drain := c.Drain()
	return errors.Join(policy, drain, c.validateMode())
}

func (c Config) validateMode() error {
	_, known := ways()[c.Way]
	switch {
	case c.Mode != "" && c.Mode != ModeInPod && c.Mode != ModeNode:
		return fmt.Errorf("mode is %q: set %q or %q", c.Mode, ModeInPod, ModeNode)
	case !known:
		return fmt.Errorf("way is %q: set %q or %q", c.Way, ambient.WayVeth, ambient.WayVXLAN)
	case c.OnNode():
		return c.validateOnNode()
	case c.Way != "":
		return fmt.Errorf("way is %q, which is for mode %q alone: remove it, or set that mode", c.Way, ModeNode)
	}
	return nil
}

// validateOnNode refuses what the capture in the node's namespace cannot do.
func (c Config) validateOnNode() error {
	fail := func(what string) error {
		return fmt.Errorf("mode %q %s, or set mode %q", ModeNode, what, ModeInPod)
	}
	switch {
	case c.ProxyNamespace == "":
		return fail("needs the proxy's pod: set proxyNamespace")
	case c.NoHost:
		return fail("captures with the host's rules: remove noHost")
	case c.CaptureExisting:
		return fail("leaves the connections that a pod has as they are: remove captureExisting")
	}
	return nil
}

// OnNode reports whether the node's namespace captures the pods.
func (c Config) OnNode() bool { return c.Mode == ModeNode }

// ProxyWay returns the kind of the wires to the proxy, for mode node.
func (c Config) ProxyWay() ambient.Way { return ways()[c.Way] }

// ways are the values of Way.
func ways() map[string]ambient.Way {
	return map[string]ambient.Way{"": ambient.WayVeth, ambient.WayVeth.String(): ambient.WayVeth, ambient.WayVXLAN.String(): ambient.WayVXLAN}
}

// Policy returns which pods are enrolled.
func (c Config) Policy() (ambient.Policy, error) {
	policy := ambient.IstioPolicy()
	if len(c.Selectors) > 0 {
		selectors, err := ambient.ParseSelectors(c.Selectors)
		if err != nil {
			return ambient.Policy{}, err
		}
		policy.Selectors = selectors
	}
	policy.ExcludeNamespaces, policy.ProxyNamespace = c.ExcludeNamespaces, c.ProxyNamespace
	if policy.ProxyLabels = c.ProxyLabels; len(c.ProxyLabels) == 0 {
		policy.ProxyLabels = map[string]string{"app": "ztunnel"}
	}
	return policy, policy.Validate()
}

// Drain returns DrainTimeout, and 0 if it is empty.
func (c Config) Drain() (time.Duration, error) {
	if c.DrainTimeout == "" {
		return 0, nil
	}
	drain, err := time.ParseDuration(c.DrainTimeout)
	if err == nil && drain <= 0 {
		err = fmt.Errorf("drainTimeout is %s: give a time above zero", c.DrainTimeout)
	}
	return drain, err
}

// NodeState returns the path of node-ambient's file about the node's proxies, beside its directory
// of records. The file is there while the node's namespace captures pods.
func NodeState(records string) string { return records + ".node.json" }
