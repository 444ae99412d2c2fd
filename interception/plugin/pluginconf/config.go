// SPDX-License-Identifier: Apache-2.0

package pluginconf

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/spool"
)

// Defaults of settings.
const (
	// DefaultTimeout is how long an ADD takes at most.
	DefaultTimeout = 30 * time.Second
	// DefaultAbandonedAfter is how long the node agent must be gone, and its token refused, until the
	// plugin's errors say how to uninstall.
	DefaultAbandonedAfter = time.Hour
)

// Config is the plugin's entry in the network's configuration, as the runtime passes it. Other keys
// are ignored.
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
	// EnablementSelectors are for the hook that decides about the pods of ambient mode, which reads
	// them.
	EnablementSelectors json.RawMessage `json:"enablement_selectors"`

	// Those of Istio's plugin before 1.23.
	OldLogLevel string     `json:"log_level"`
	LogSocket   string     `json:"log_uds_address"`
	Kubernetes  Kubernetes `json:"kubernetes"`

	// Our own.
	// AmbientProxyNamespace and AmbientProxyName are the namespace and the DaemonSet of the proxy of
	// ambient mode.
	AmbientProxyNamespace string `json:"ambient_proxy_namespace"`
	AmbientProxyName      string `json:"ambient_proxy_name"`

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

// Kubernetes is a block of Istio's plugin before 1.23. Its other keys have no effect.
type Kubernetes struct {
	Kubeconfig        string   `json:"kubeconfig"`
	ExcludeNamespaces []string `json:"exclude_namespaces"`
}

// ErrValue is in the error of [Paths.Parse] for a key that has a wrong type or value. Without it
// the entry is not a JSON object.
var ErrValue = errors.New("setting")

// valueError is an error that is [ErrValue], and says so by its text alone.
type valueError struct{ error }

// Is makes it ErrValue.
func (valueError) Is(target error) bool { return target == ErrValue }

// Unwrap returns the error that it wraps.
func (e valueError) Unwrap() error { return e.error }

// Decode reads the entry without judging its values, and fills in no defaults but that of
// CNIVersion. Even with an error, what it returns has the CNI version, and what could be read.
func Decode(data []byte) (Config, error) {
	var c Config
	err := json.Unmarshal(data, &c)
	c.CNIVersion = cmp.Or(c.CNIVersion, "0.1.0") // as the specification has it
	c.modernise()
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		err = valueError{fmt.Errorf("%s is a %s, and should be %s", wrong.Field, wrong.Value, kindOf(wrong.Type))}
	}
	return c, err
}

// modernise takes from the keys of the earlier generation what the newer ones don't say.
func (c *Config) modernise() {
	c.LogLevel = cmp.Or(c.LogLevel, c.OldLogLevel)
	if c.ExcludeNamespaces == nil {
		c.ExcludeNamespaces = c.Kubernetes.ExcludeNamespaces
	}
	c.Kubeconfig = cmp.Or(c.Kubeconfig, c.Kubernetes.Kubeconfig)
	if c.RunDir == "" && filepath.Base(c.LogSocket) == spool.IstioLogSocket {
		c.RunDir = filepath.Dir(c.LogSocket)
	}
}

// kindOf names the type of a setting as JSON and people do.
func kindOf(t reflect.Type) string {
	switch t.Kind() { //nolint:exhaustive // the names of the other kinds are fine
	case reflect.Slice:
		return "a list of strings"
	case reflect.Map, reflect.Struct:
		return "an object"
	default:
		return "a " + t.Kind().String()
	}
}

func (c *Config) validate() error {
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
	// Auto is the first dataplane for which the kernel has all that a plan needs: nftables, then
	// iptables in the build that has it.
	Auto = "auto"
	// NFTables and IPTables are that dataplane only.
	NFTables = choice.NFTables
	IPTables = choice.IPTables
)

// Dataplanes returns all values of dataplane but the empty one.
func Dataplanes() []string { return []string{Auto, NFTables, IPTables} }

// Chosen returns the value of dataplane that applies; it is never empty.
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

// The values of a fail policy.
const (
	FailOpen   = "open"
	FailClosed = "closed"
)

// FailPolicies returns the values of [FailPolicy].Default; an empty one is FailClosed.
func FailPolicies() []string { return []string{FailClosed, FailOpen} }

// FailPolicy says what happens to a pod that no source knows: if closed, it doesn't start; if open,
// the plugin leaves it alone. The zero value is closed for all pods.
type FailPolicy struct {
	// Default is FailOpen, FailClosed or empty for FailClosed.
	Default string `json:"default,omitempty"`
	// Open and Closed are namespaces for which the default doesn't count. No namespace may be in both.
	Open   []string `json:"open,omitempty"`
	Closed []string `json:"closed,omitempty"`
}

// Opens reports whether the policy is open for a namespace.
func (p FailPolicy) Opens(namespace string) bool {
	if p.Default == FailOpen {
		return !slices.Contains(p.Closed, namespace)
	}
	return slices.Contains(p.Open, namespace)
}

// Validate says what is wrong with the policy.
func (p FailPolicy) Validate() error {
	var errs []error
	if p.Default != "" && !slices.Contains(FailPolicies(), p.Default) {
		errs = append(errs, fmt.Errorf(`fail_policy.default is %q, and should be "closed" or "open"`, p.Default))
	}
	for _, namespace := range p.Open {
		if slices.Contains(p.Closed, namespace) {
			errs = append(errs, fmt.Errorf("fail_policy has namespace %q both in open and in closed: remove it from one", namespace))
		}
	}
	return errors.Join(errs...)
}

// StatusPolicy says when STATUS may report that the plugin isn't ready. As long as it does, the
// node starts no pods but those in the host's network, and renews no tokens of the others. It must
// not keep the node agent from either. An empty policy is StatusAfterFirstReady.
type StatusPolicy string

// The policies, as the plugin's README explains them.
const (
	StatusStrict          StatusPolicy = "strict"
	StatusAfterFirstReady StatusPolicy = "after-first-ready"
	StatusOff             StatusPolicy = "off"
)

// StatusPolicies returns the values of [StatusPolicy].
func StatusPolicies() []string {
	return []string{string(StatusStrict), string(StatusAfterFirstReady), string(StatusOff)}
}

// Validate returns an error unless the policy is one of them, or empty.
func (p StatusPolicy) Validate() error {
	if p != "" && !slices.Contains(StatusPolicies(), string(p)) {
		return fmt.Errorf(`status_policy is %q, and should be "strict", "after-first-ready" or "off"`, string(p))
	}
	return nil
}

// Timeout is a setting that is a time, as a Go duration such as "30s". An empty one stands for a
// default.
type Timeout string

// Duration returns the time, or [DefaultTimeout] if the text isn't one above zero.
func (t Timeout) Duration() time.Duration { return t.Or(DefaultTimeout) }

// Or returns the time, or a default if the text isn't one above zero.
func (t Timeout) Or(otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(string(t)); err == nil && d > 0 {
		return d
	}
	return otherwise
}

// Validate returns an error unless it is a time above zero, or empty.
func (t Timeout) Validate() error { return t.validateAs("timeout") }

// validateAs is Validate for the key that it is the value of.
func (t Timeout) validateAs(key string) error {
	if t == "" {
		return nil
	}
	if d, err := time.ParseDuration(string(t)); err != nil || d <= 0 {
		return fmt.Errorf(`%s is %q, and should be a time such as "30s"`, key, string(t))
	}
	return nil
}

// LevelNone is above everything that is logged.
const LevelNone = slog.Level(math.MaxInt)

// ParseLevel returns the level of a name that Istio gives it. An empty name is info, and fatal is
// the same as error.
func ParseLevel(name string) (slog.Level, error) {
	switch name {
	case "debug":
		return slog.LevelDebug, nil
	case "", "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error", "fatal":
		return slog.LevelError, nil
	case "none":
		return LevelNone, nil
	default:
		return 0, fmt.Errorf("%q, and should be debug, info, warn, error, fatal or none", name)
	}
}
