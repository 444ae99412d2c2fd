// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
)

// Ambient are the settings of ambient mode.
type Ambient struct {
	Enabled bool
	// Mode is where pods are captured, one of [ambientconf.ModeInPod] and [ambientconf.ModeNode];
	// empty for in the pods.
	Mode string
	// Way is the kind of the wires to the proxy for capture on the node: "veth", "vxlan", or empty for
	// "veth".
	Way string
	// Selectors select the pods; nil stands for Istio's.
	Selectors []ambient.Selector
	DNS       bool // queries are captured, too
	Closed    bool // pods are captured before the proxy serves them
	// Existing is what becomes of the connections of a pod that is enrolled while it runs: "spare",
	// "capture", or empty for "spare".
	Existing string
	// DrainTimeout is how long a withdrawn pod may keep its connections; empty for the agent's own.
	DrainTimeout pluginconf.Timeout
	// ProxySocket is the socket for the proxy that enters the pods. With capture on the node, pods use
	// it that move from one mode to the other.
	ProxySocket string
	// ProxyNamespace and ProxyName are those of the proxy's DaemonSet. An empty namespace stands for
	// PodNamespace.
	ProxyNamespace, ProxyName string
	// Program is node-ambient; empty: beside this program.
	Program string
	// Branches lets the host route probes to pods that have routing tables of their own.
	Branches bool
	// DisableSafeUpgrade makes each end of the daemon an uninstall.
	DisableSafeUpgrade bool
}

// The values of ambient-existing.
const (
	existingSpare   = "spare"
	existingCapture = "capture"
)

// inAmbientMode are the settings of ambient mode.
func inAmbientMode() []Setting {
	t := table{group: AmbientMode}
	t.add("ambient-enabled", "false", boolean(func(s *Settings) *bool { return &s.Ambient.Enabled }),
		"the pods that ambient-enablement-selector selects are captured and served by the node's proxy (ztunnel) instead of a sidecar; "+
			"needs node-name, and a role with list and watch of namespaces and patch of pods/status")
	t.add("ambient-mode", ambientconf.ModeInPod,
		oneOf(func(s *Settings) *string { return &s.Ambient.Mode }, ambientconf.ModeInPod, ambientconf.ModeNode, ""),
		"where pods are captured: in-pod, in their own network namespaces, which the node's proxy enters, too; node, in the node's, "+
			"for a transparent proxy in a pod of its own and for pods that no program may enter")
	t.add("ambient-way", ambient.WayVeth.String(),
		oneOf(func(s *Settings) *string { return &s.Ambient.Way }, ambient.WayVeth.String(), ambient.WayVXLAN.String(), ""),
		"with ambient-mode=node, how the node reaches the proxy's pod: veth, pairs of virtual interfaces; vxlan, tunnels over the pods' network")
	t.add("ambient-enablement-selector", "", selectors(),
		"which pods, as a YAML or JSON list of a podSelector and a namespaceSelector each; empty: the label istio.io/dataplane-mode=ambient "+
			"of the pod or its namespace, unless the pod's is none")
	t.add("ambient-dns-capture", "false", boolean(func(s *Settings) *bool { return &s.Ambient.DNS }),
		"the proxy answers the pods' DNS queries, too")
	t.add("ambient-existing", existingSpare,
		oneOf(func(s *Settings) *string { return &s.Ambient.Existing }, existingSpare, existingCapture, ""),
		"the connections that a pod has when it is enrolled while it runs: spare leaves them alone; capture resets them, so that they are made anew")
	t.add("drain-timeout", "20s", duration(func(s *Settings) *pluginconf.Timeout { return &s.Ambient.DrainTimeout }),
		"how long a pod that leaves the mesh may keep its connections through the proxy, such as 10s (with ambient-mode=node when all pods "+
			"leave; else to their end); an uninstall waits about 22s for all pods")
	t.add("ambient-closed", "false", boolean(func(s *Settings) *bool { return &s.Ambient.Closed }),
		"a pod that runs is captured before the proxy serves it, so that until then its connections are refused instead of going past the mesh")
	t.add("ztunnel-uds-address", "/var/run/ztunnel/ztunnel.sock", socket(func(s *Settings) *string { return &s.Ambient.ProxySocket }),
		"the socket that the node's proxy connects to; its directory is mounted in the proxy's container, too")
	t.add("ambient-proxy-namespace", "", label(func(s *Settings) *string { return &s.Ambient.ProxyNamespace }),
		"the namespace of the node's proxy, whose pods the mesh leaves alone; empty: pod-namespace", also("SYSTEM_NAMESPACE"))
	t.add("ambient-proxy-name", "ztunnel", label(func(s *Settings) *string { return &s.Ambient.ProxyName }),
		"the proxy's DaemonSet, whose pods the plugin lets pass without a question")
	t.add("node-ambient", "", optionalPath(func(s *Settings) *string { return &s.Ambient.Program }),
		"the program that keeps the node's pods in ambient mode; empty: node-ambient beside this one")
	t.add("ambient-enable-aws-branch-eni-probe", "true", boolean(func(s *Settings) *bool { return &s.Ambient.Branches }),
		"pods with routing tables of their own, such as those with security groups in AWS, get policy rules on the host by which their probes "+
			"are answered; only where net.ipv4.tcp_early_demux is 0")
	t.add("ambient-disable-safe-upgrade", "false", boolean(func(s *Settings) *bool { return &s.Ambient.DisableSafeUpgrade }),
		"with ambient-enabled, the same as uninstall-on-exit")
	return t.rows
}

// inertOfAmbient are settings of Istio's ambient mode that change nothing here.
func inertOfAmbient() []Setting {
	t := table{group: NoEffect}
	const fixed = "probes come from the address that Istio has by default"
	for _, r := range []struct{ name, kind, note, value, why string }{
		{"ambient-ipv6", "bool", "ambient-ipv6", "true", "both families are captured wherever the pod has them"},
		{
			"ambient-reconcile-pod-rules-on-startup", "bool", "ambient-reconcile-pod-rules-on-startup", "true",
			"rules are compared with what they should be at every start, and while the daemon runs",
		},
		{"enable-ambient-detection-retry", "bool", "", "false", "a pod about which the plugin can't learn enough is never let past the mesh"},
		{"host-probe-snat-ip", "string", "host-probe-snat-ip", "169.254.7.127", fixed},
		{"host-probe-snat-ipv6", "string", "host-probe-snat-ipv6", "fd16:9254:7127:1337:ffff:ffff:ffff:ffff", fixed},
	} {
		t.add(r.name, r.value, ignored(r.kind, r.note, r.value), r.why, noEffect)
	}
	return t.rows
}

// selectors parses the enablement selectors, as YAML or JSON.
func selectors() parser {
	of := func(s *Settings) *[]ambient.Selector { return &s.Ambient.Selectors }
	return parsed("selectors", shape{Type: "string"}, of, func(value string) ([]ambient.Selector, error) {
		var list any
		if err := yaml.Unmarshal([]byte(value), &list); err != nil {
			return nil, fmt.Errorf("it is not YAML: %w", err)
		}
		if list == nil {
			return nil, nil
		}
		text, err := json.Marshal(list)
		if err != nil {
			return nil, fmt.Errorf("it is not JSON in the form of YAML: %w", err)
		}
		return ambient.ParseSelectors(text)
	})
}

// socket parses the path of a socket in a directory that this program writes to.
func socket(of func(*Settings) *string) parser {
	return parsed("path", shape{Type: "string", Pattern: "^/+[^/]+/+[^/]"}, of, func(value string) (string, error) {
		path, err := absolute(value)
		switch {
		case err != nil:
		case path == "" || path == "/":
			err = errors.New("write the absolute path of a socket")
		case ofSystem(filepath.Dir(path)):
			err = errors.New("the socket is made there: name one in a directory of its own")
		}
		return path, err
	})
}

// AmbientConfig returns the configuration of the programs of ambient mode; nil if it is off.
func (s Settings) AmbientConfig() (*ambientconf.Config, error) {
	a := s.Ambient
	if !a.Enabled {
		return nil, nil
	}
	selectors, err := s.enablementSelectors()
	if err != nil {
		return nil, err
	}
	plugin, err := s.PluginConfig()
	if err != nil {
		return nil, err
	}
	config := &ambientconf.Config{
		Selectors: selectors, ExcludeNamespaces: plugin.ExcludeNamespaces, ProxyNamespace: s.ambientProxyNamespace(), DNS: a.DNS, Closed: a.Closed,
		CaptureExisting: a.Existing == existingCapture, NoBranches: !a.Branches, DrainTimeout: string(a.DrainTimeout),
	}
	if a.onNode() {
		config.Mode, config.Way = a.Mode, a.Way
	}
	if chosen := plugin.Chosen(); chosen != pluginconf.Auto {
		config.Dataplane = chosen
	}
	return config, nil
}

// enablementSelectors returns the selectors as the plugin's entry and the programs have them.
func (s Settings) enablementSelectors() (json.RawMessage, error) {
	selectors := s.Ambient.Selectors
	if selectors == nil {
		selectors = ambient.IstioPolicy().Selectors
	}
	return json.Marshal(selectors)
}

func (s Settings) ambientProxyNamespace() string {
	return cmp.Or(s.Ambient.ProxyNamespace, s.PodNamespace)
}

// EventSocket is where the program of ambient mode takes the plugin's requests.
func (s Settings) EventSocket() string { return filepath.Join(s.RunDir, "pluginevent.sock") }

// onNode reports whether the node's namespace captures the pods.
func (a Ambient) onNode() bool { return a.Mode == ambientconf.ModeNode }

// ambientNeeds requires what ambient mode needs, and refuses what it cannot do where pods are
// captured.
func (s Settings) ambientNeeds() error {
	a := s.Ambient
	switch {
	case !a.Enabled:
		return nil
	case s.NodeName == "":
		return errors.New("ambient-enabled is set, but the node's name is unknown: set node-name")
	case a.onNode() && s.ambientProxyNamespace() == "":
		return errors.New("ambient-mode is node, but the namespace of the proxy's pods is unknown: set ambient-proxy-namespace")
	case a.onNode() && a.Existing == existingCapture:
		return errors.New("ambient-existing is capture, but ambient-mode=node leaves the connections of a running pod alone: " +
			"remove ambient-existing, or set ambient-mode=in-pod")
	case !a.onNode() && a.Way == ambient.WayVXLAN.String():
		return errors.New("ambient-way is vxlan, but ambient-mode is in-pod, where no wire leads to the proxy: " +
			"set ambient-mode=node, or remove ambient-way")
	}
	return nil
}
