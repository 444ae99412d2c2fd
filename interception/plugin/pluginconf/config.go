// SPDX-License-Identifier: Apache-2.0

package pluginconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/spool"
)

// Defaults of settings.
const (
	// DefaultTimeout is how long an ADD takes at most.
	DefaultTimeout = 30 * time.Second
	// DefaultAbandonedAfter is how long the node agent must be gone, and its token refused, until the plugin's errors say how to uninstall.
	DefaultAbandonedAfter = time.Hour
)

// Config is the plugin's entry in the network's configuration, as the runtime passes it. Other keys are ignored.
type Config struct {
	CNIVersion string          `json:"cniVersion"`
	Name       string          `json:"name"`
	PrevResult json.RawMessage `json:"prevResult"`
	// RuntimeConfig is what the runtime adds for the entry's capabilities.
	RuntimeConfig podsource.RuntimeConfig `json:"runtimeConfig"`

	// Istio's settings. LogLevel is a name of [ParseLevel]; RunDir is an absolute path.
	LogLevel          string   `json:"plugin_log_level"`
	RunDir            string   `json:"cni_agent_run_dir"`
	AmbientEnabled    bool     `json:"ambient_enabled"`
	ExcludeNamespaces []string `json:"exclude_namespaces"`
	PodNamespace      string   `json:"pod_namespace"`
	NativeNFTables    bool     `json:"native_nftables"`

	// Those of its earlier generation.
	OldLogLevel string     `json:"log_level"`
	LogSocket   string     `json:"log_uds_address"`
	Kubernetes  Kubernetes `json:"kubernetes"`

	// Our own.
	Kubeconfig   string       `json:"kubeconfig"`
	Dataplane    string       `json:"dataplane"`
	AgentName    string       `json:"agent_name"`
	ProcRoot     string       `json:"proc_root"`
	Timeout      Timeout      `json:"timeout"`
	FailPolicy   FailPolicy   `json:"fail_policy"`
	StatusPolicy StatusPolicy `json:"status_policy"`
	// AbandonedAfter is [DefaultAbandonedAfter] when it is empty.
	AbandonedAfter Timeout `json:"abandoned_after"`

	// Level is what LogLevel says.
	Level slog.Level `json:"-"`
}

// Kubernetes is a block of Istio's plugin before 1.23. Its other keys had no effect any more.
type Kubernetes struct {
	Kubeconfig        string   `json:"kubeconfig"`
	ExcludeNamespaces []string `json:"exclude_namespaces"`
}

// ErrValue is in the error of [Paths.Parse] for a key that has a wrong type or value. Without it the entry is no JSON object.
var ErrValue = errors.New("setting")

// valueError is an error that is [ErrValue], and says so by its text alone.
type valueError struct{ error }

// Is makes it ErrValue.
func (valueError) Is(target error) bool { return target == ErrValue }

// Unwrap gives what it says.
func (e valueError) Unwrap() error { return e.error }

// Decode reads the entry without judging its values, and fills in no defaults but that of CNIVersion. What it returns beside an error has
// the CNI version, and what could be read.
func Decode(data []byte) (Config, error) {
	var c Config
	err := json.Unmarshal(data, &c)
	if c.CNIVersion == "" {
		c.CNIVersion = "0.1.0" // as the specification has it
	}
	c.modernise()
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		err = valueError{fmt.Errorf("%s is a %s, and should be %s", wrong.Field, wrong.Value, kindOf(wrong.Type))}
	}
	return c, err
}

// modernise takes from the keys of the earlier generation what the newer ones don't say.
func (c *Config) modernise() {
	if c.LogLevel == "" {
		c.LogLevel = c.OldLogLevel
	}
	if c.ExcludeNamespaces == nil {
		c.ExcludeNamespaces = c.Kubernetes.ExcludeNamespaces
	}
	if c.Kubeconfig == "" {
		c.Kubeconfig = c.Kubernetes.Kubeconfig
	}
	if c.RunDir == "" && filepath.Base(c.LogSocket) == spool.IstioLogSocket {
		c.RunDir = filepath.Dir(c.LogSocket)
	}
}

// kindOf names the type of a setting as JSON and people do.
func kindOf(t reflect.Type) string {
	switch t.Kind() { //nolint:exhaustive // the others have names
	case reflect.Slice:
		return "a list of strings"
	case reflect.Map, reflect.Struct:
		return "an object"
	default:
		return "a " + t.Kind().String()
	}
}

func (c Config) validate() error {
	var errs []error
	for _, path := range []struct{ key, value string }{
		{"cni_agent_run_dir", c.RunDir}, {"kubeconfig", c.Kubeconfig}, {"proc_root", c.ProcRoot},
	} {
		if path.value != "" && !filepath.IsAbs(path.value) {
			errs = append(errs, fmt.Errorf("%s is %q, and should be an absolute path", path.key, path.value))
		}
	}
	if c.Dataplane != "" && !slices.Contains(Dataplanes(), c.Dataplane) {
		errs = append(errs, fmt.Errorf(`dataplane is %q, and should be "auto", "nftables" or "iptables"`, c.Dataplane))
	}
	return errors.Join(errs...)
}

// The values of dataplane. An empty one is [NFTables] where native_nftables is true, else [Auto].
const (
	// Auto is the first that the kernel has all for of what a plan needs: nftables, then iptables in the build that has it.
	Auto = "auto"
	// NFTables and IPTables are that one alone.
	NFTables = "nftables"
	IPTables = "iptables"
)

// Dataplanes are all of them.
func Dataplanes() []string { return []string{Auto, NFTables, IPTables} }

// Chosen is the value of dataplane that holds.
func (c Config) Chosen() string {
	switch {
	case c.Dataplane != "":
		return c.Dataplane
	case c.NativeNFTables:
		return NFTables
	default:
		return Auto
	}
}
