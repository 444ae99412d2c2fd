// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
)

// NodeState is what the agent of a node that captures tells the plugin, in a file. That of Istio
// 1.18 to 1.20 is /etc/ambient-config/config.json. Without the file the plugin assumes that the
// proxy is not ready.
type NodeState struct {
	// ProxyReady reports whether the node's proxy takes connections.
	ProxyReady bool `json:"ztunnelReady"`
	// Mode is how the node captures.
	Mode NodeMode `json:"redirectMode"`
}

// NodeMode is a way to capture on a node.
type NodeMode string

// The modes.
const (
	// NodeModeRules is [ambient.NodePlan]. The name in the file is Istio's, whatever writes
	// the rules.
	NodeModeRules NodeMode = "iptables"
	// NodeModeEBPF is programs at the pods' interfaces.
	NodeModeEBPF NodeMode = "ebpf"
)

// ErrNodeState is wrapped by errors about the file of a [NodeState].
var ErrNodeState = errors.New("invalid state of the node")

// Validate returns an error that wraps [ErrNodeState] for an unknown mode.
func (s NodeState) Validate() error {
	if s.Mode != NodeModeRules && s.Mode != NodeModeEBPF {
		return fmt.Errorf("%w: redirectMode is %q: it must be iptables or ebpf", ErrNodeState, s.Mode)
	}
	return nil
}

// Bytes returns the file. The error comes from Validate.
func (s NodeState) Bytes() ([]byte, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// ParseNodeState reads the file. Keys that it does not know are ignored, as Istio's plugin does.
// The error wraps [ErrNodeState].
func ParseNodeState(file []byte) (NodeState, error) {
	var s NodeState
	if err := json.Unmarshal(file, &s); err != nil {
		return NodeState{}, fmt.Errorf("%w: %w", ErrNodeState, err)
	}
	if err := s.Validate(); err != nil {
		return NodeState{}, err
	}
	return s, nil
}
