// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/interception/podsource"
)

// PluginType is the plugin's type in CNI configurations, and its binary's name.
const PluginType = "istio-cni"

// entry is the plugin's entry in a list. The first fields are those that Istio's installer writes,
// with the values for a sidecar mesh; cniVersion is omitted because the list has its own. The
// capabilities make the container runtime pass on the pod's annotations. Our own fields follow, if
// they are set.
type entry struct {
	Name                        string          `json:"name"`
	Type                        string          `json:"type"`
	IPAM                        struct{}        `json:"ipam"`
	DNS                         struct{}        `json:"dns"`
	PluginLogLevel              string          `json:"plugin_log_level"`
	AgentRunDir                 string          `json:"cni_agent_run_dir"`
	AmbientEnabled              bool            `json:"ambient_enabled"`
	EnablementSelectors         json.RawMessage `json:"enablement_selectors"`
	ExcludeNamespaces           []string        `json:"exclude_namespaces"`
	PodNamespace                string          `json:"pod_namespace"`
	NativeNFTables              bool            `json:"native_nftables"`
	EnableAmbientDetectionRetry bool            `json:"enable_ambient_detection_retry"`

	Capabilities map[string]bool `json:"capabilities"`

	Kubeconfig string `json:"kubeconfig,omitempty"`
	Dataplane  string `json:"dataplane,omitempty"`
	AgentName  string `json:"agent_name,omitempty"`

	ProcRoot string             `json:"proc_root,omitempty"`
	Timeout  pluginconf.Timeout `json:"timeout,omitempty"`

	FailPolicy   *pluginconf.FailPolicy `json:"fail_policy,omitempty"`
	StatusPolicy string                 `json:"status_policy,omitempty"`

	AbandonedAfter pluginconf.Timeout `json:"abandoned_after,omitempty"`

	AmbientProxyNamespace string `json:"ambient_proxy_namespace,omitempty"`
	AmbientProxyName      string `json:"ambient_proxy_name,omitempty"`
}

// Entry returns the plugin's entry, which the plugin accepts. With a template it is that, completed
// by the settings.
func (s Settings) Entry() (json.RawMessage, error) {
	template, err := s.TemplateEntry()
	if err != nil {
		return nil, err
	}
	own, err := s.entry()
	if err != nil {
		return nil, fmt.Errorf("render the plugin's configuration: %w", err)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if template == nil {
		err = encoder.Encode(own)
	} else if err = amend(template, own); err == nil {
		err = encoder.Encode(template)
	}
	if err == nil {
		_, err = PluginPaths().Parse(out.Bytes())
	}
	if err != nil {
		return nil, fmt.Errorf("render the plugin's configuration: %w", err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// PluginConfig returns the entry as the plugin parses it, with the template's values. Repair and
// ambient mode use it to leave the same pods alone and to write rules by the same dataplane.
func (s Settings) PluginConfig() (pluginconf.Config, error) {
	entry, err := s.Entry()
	if err != nil {
		return pluginconf.Config{}, err
	}
	return PluginPaths().Parse(entry)
}

// entry returns the entry from the settings.
func (s Settings) entry() (entry, error) {
	e := entry{
		Name:                PluginType,
		Type:                PluginType,
		PluginLogLevel:      s.PluginLogLevel,
		AgentRunDir:         s.RunDir,
		EnablementSelectors: json.RawMessage("[]"),
		ExcludeNamespaces:   s.ExcludeNamespaces,
		PodNamespace:        s.PodNamespace,
		NativeNFTables:      s.NativeNFTables,
		Capabilities:        map[string]bool{podsource.CapabilityPodAnnotations: true},
		Kubeconfig:          s.PluginKubeconfig,
		Dataplane:           s.PluginDataplane,
		AgentName:           s.AgentName,
		ProcRoot:            s.PluginProcRoot,
		Timeout:             s.PluginTimeout,
		StatusPolicy:        s.StatusPolicy,
		AbandonedAfter:      s.AbandonedAfter,
	}
	if e.Kubeconfig == "" && s.KubeconfigPath() != filepath.Join(s.RunDir, PluginPaths().Kubeconfig) {
		e.Kubeconfig = s.KubeconfigOnNode()
	}
	if p := s.FailPolicy; p.Default != "" || len(p.Open) > 0 || len(p.Closed) > 0 {
		e.FailPolicy = &p
	}
	if !s.Ambient.Enabled {
		return e, nil
	}
	e.AmbientEnabled, e.AmbientProxyNamespace, e.AmbientProxyName = true, s.ambientProxyNamespace(), s.Ambient.ProxyName
	var err error
	e.EnablementSelectors, err = s.enablementSelectors()
	return e, err
}

// amend adds to a template what it lacks, and replaces its values by settings that were set: these
// are newer.
func amend(template map[string]json.RawMessage, e entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	var from map[string]json.RawMessage
	if err := json.Unmarshal(text, &from); err != nil {
		return err
	}
	for _, key := range []string{"cni_agent_run_dir", "pod_namespace", "agent_name", "capabilities"} {
		if _, said := template[key]; !said && from[key] != nil && string(from[key]) != `""` {
			template[key] = from[key]
		}
	}
	given := map[string]bool{
		"exclude_namespaces": len(e.ExcludeNamespaces) > 0, "native_nftables": e.NativeNFTables, "dataplane": e.Dataplane != "",
		"proc_root": e.ProcRoot != "", "timeout": e.Timeout != "", "fail_policy": e.FailPolicy != nil, "status_policy": e.StatusPolicy != "",
		"abandoned_after": e.AbandonedAfter != "", "ambient_enabled": e.AmbientEnabled, "enablement_selectors": e.AmbientEnabled,
		"ambient_proxy_namespace": e.AmbientProxyNamespace != "", "ambient_proxy_name": e.AmbientProxyName != "",
	}
	for key, given := range given {
		if given {
			template[key] = from[key]
		}
	}
	return nil
}
