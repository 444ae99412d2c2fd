// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/journal"
)

// Defaults of settings, as Istio's installer writes them.
const (
	defaultRunDir    = "/var/run/istio-cni"
	defaultAgentName = "istio-cni-node"
	kubeconfigName   = "istio-cni-kubeconfig"
	journalName      = "journal"
	defaultTimeout   = 30 * time.Second
)

// config is the plugin's entry in the network's configuration, as the runtime passes it. Other keys are ignored.
type config struct {
	CNIVersion string          `json:"cniVersion"`
	Name       string          `json:"name"`
	PrevResult json.RawMessage `json:"prevResult"`
	// RuntimeConfig is what the runtime adds for the entry's capabilities.
	RuntimeConfig podsource.RuntimeConfig `json:"runtimeConfig"`

	// Istio's settings.
	LogLevel          string   `json:"plugin_log_level"`
	RunDir            string   `json:"cni_agent_run_dir"`
	AmbientEnabled    bool     `json:"ambient_enabled"`
	ExcludeNamespaces []string `json:"exclude_namespaces"`
	PodNamespace      string   `json:"pod_namespace"`
	NativeNFTables    bool     `json:"native_nftables"`

	// Our own.
	Kubeconfig string `json:"kubeconfig"`
	Dataplane  string `json:"dataplane"`
	AgentName  string `json:"agent_name"`
	ProcRoot   string `json:"proc_root"`
	Timeout    string `json:"timeout"`

	FailPolicy   failPolicy   `json:"fail_policy"`
	StatusPolicy statusPolicy `json:"status_policy"`

	level   slog.Level    // what LogLevel says
	timeout time.Duration // what Timeout says
}

// parseConfig reads the configuration and fills in defaults.
func parseConfig(data []byte) (config, error) {
	var c config
	err := json.Unmarshal(data, &c)
	if c.CNIVersion == "" {
		c.CNIVersion = "0.1.0" // as the specification has it
	}
	if err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			err = fmt.Errorf("%s is a %s, and should be %s", wrong.Field, wrong.Value, kindOf(wrong.Type))
			return c, c.failure(types.ErrInvalidNetworkConfig, err)
		}
		return config{}, c.failure(types.ErrDecodingFailure, err)
	}
	c.level, err = parseLevel(c.LogLevel)
	errs := []error{err, c.validate(), c.FailPolicy.validate(), c.StatusPolicy.validate()}
	c.timeout, err = parseTimeout(c.Timeout)
	if err := errors.Join(append(errs, err)...); err != nil {
		return c, c.failure(types.ErrInvalidNetworkConfig, err)
	}
	c.RunDir = c.runDir()
	if c.Kubeconfig == "" {
		c.Kubeconfig = filepath.Join(c.RunDir, kubeconfigName)
	}
	if c.AgentName == "" {
		c.AgentName = defaultAgentName
	}
	return c, nil
}

// kindOf names the type of a setting as JSON and people do.
func kindOf(t reflect.Type) string {
	switch t.Kind() { //nolint:exhaustive // the others have names
	case reflect.Slice:
		return "a list of strings"
	case reflect.Map, reflect.Struct:
		return "an object"
	default:
		return "a " + t.String()
	}
}

func parseTimeout(text string) (time.Duration, error) {
	if text == "" {
		return defaultTimeout, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf(`timeout is %q, and should be a time such as "30s"`, text)
	}
	return d, nil
}

func (c config) validate() error {
	var errs []error
	for _, path := range []struct{ key, value string }{
		{"cni_agent_run_dir", c.RunDir}, {"kubeconfig", c.Kubeconfig}, {"proc_root", c.ProcRoot},
	} {
		if path.value != "" && !filepath.IsAbs(path.value) {
			errs = append(errs, fmt.Errorf("%s is %q, and should be an absolute path", path.key, path.value))
		}
	}
	switch c.Dataplane {
	case "", "auto", "nftables":
	default:
		errs = append(errs, fmt.Errorf(`dataplane is %q, and should be "auto" or "nftables"`, c.Dataplane))
	}
	return errors.Join(errs...)
}

func (c config) failure(code uint, err error) error {
	return &failure{
		code: code, step: "read configuration", cause: err,
		remedy: "correct the entry of " + pluginName + " in the node's CNI configuration, or let the node agent write it anew",
	}
}

// runDir is the run directory, also of a configuration that is wrong otherwise.
func (c config) runDir() string {
	if !filepath.IsAbs(c.RunDir) {
		return defaultRunDir
	}
	return c.RunDir
}

// journal is where what ADD applied is kept.
func (c config) journal() journal.Journal {
	return journal.Journal{Directory: filepath.Join(c.RunDir, journalName)}
}

// policy is what the configuration says about pods.
func (c config) policy(m interception.Membership) interception.Policy {
	return interception.Policy{
		Membership: m, ExcludeNamespaces: c.ExcludeNamespaces, AgentNamespace: c.PodNamespace, AgentName: c.AgentName,
	}
}
