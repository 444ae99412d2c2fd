// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/repair"
)

func TestDefaults(t *testing.T) {
	t.Parallel()
	want := Settings{
		SourceDir:           "/opt/cni/bin",
		BinDir:              "/host/opt/cni/bin",
		NetDir:              "/host/etc/cni/net.d",
		RunDir:              "/var/run/istio-cni",
		CacheDir:            "/host/var/lib/cni",
		ServiceAccountDir:   "/var/run/secrets/kubernetes.io/serviceaccount",
		APIProtocol:         "https",
		KubeconfigMode:      0o600,
		PluginLogLevel:      "info",
		ExcludeNamespaces:   []string{},
		FailPolicy:          pluginconf.FailPolicy{Open: []string{}, Closed: []string{}},
		Directory:           "/etc/install-cni",
		NodeNetDir:          "/etc/cni/net.d",
		Install:             true,
		UpdateBinaries:      true,
		SkipBinaries:        []string{},
		SecondBinDir:        "/host/secondary-bin-dir",
		HealthAddress:       ":8000",
		UninstallOnDeletion: true,
		MetricsAddress:      ":15014",
		LogLevel:            slog.LevelInfo,
		Ambient:             Ambient{Mode: "in-pod", Way: "veth", Existing: "spare", DrainTimeout: "20s", ProxySocket: "/var/run/ztunnel/ztunnel.sock", ProxyName: "ztunnel", Branches: true},
		Repair: Repair{
			Enabled: true, ProcDir: "/host/proc", NetnsDirs: []string{"/host/var/run/netns"},
			BrokenPodLabel: repair.IstioLabel(), SidecarAnnotation: "sidecar.istio.io/status", Validator: repair.IstioValidator(),
			Writes: repair.DefaultLimits().Writes, Disruptions: repair.DefaultLimits().Disruptions, Resync: 10 * time.Minute,
		},
	}
	if diff := cmp.Diff(want, mustLoad(t, nil)); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

// TestIstiosSpelling: a variable with the name in Istio's chart has the effect of the chart's
// value.
func TestIstiosSpelling(t *testing.T) {
	t.Parallel()
	s := mustLoad(t, map[string]string{"ISTIO_OWNED_CNI_CONFIG": "true", "ISTIO_OWNED_CNI_CONF_FILENAME": "01-ours.conflist"})
	if s.OwnFile != "01-ours.conflist" {
		t.Errorf("got %q", s.OwnFile)
	}
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	env := map[string]string{"CNI_CONF_NAME": "10-env.conflist"}
	if got := mustLoad(t, env).ConfName; got != "10-env.conflist" {
		t.Errorf("environment over default: %q", got)
	}
	if got := mustLoad(t, env, "--cni-conf-name=10-flag.conflist").ConfName; got != "10-flag.conflist" {
		t.Errorf("flag over environment: %q", got)
	}
	if got := mustLoad(t, env, "--cni-conf-name=").ConfName; got != "" {
		t.Errorf("an empty flag over the environment: %q", got)
	}
	if got := mustLoad(t, map[string]string{"KUBERNETES_SERVICE_PROTOCOL": "http"}).APIProtocol; got != "http" {
		t.Errorf("environment over default: %q", got)
	}
}

func TestEmptyVariableCountsAsSet(t *testing.T) {
	t.Parallel()
	if s := mustLoad(t, map[string]string{"SKIP_TLS_VERIFY": "", "EXCLUDE_NAMESPACES": "", "CHAINED_CNI_PLUGIN": ""}); !s.Standalone || s.SkipTLSVerify || len(s.ExcludeNamespaces) != 0 {
		t.Errorf("settings = %+v", s)
	}
	wantErrors(t, map[string]string{"MOUNTED_CNI_NET_DIR": "", "KUBECONFIG_MODE": ""}, nil,
		`environment MOUNTED_CNI_NET_DIR="": a directory is needed`,
		`environment KUBECONFIG_MODE="": write octal`)
}

// TestEveryRow checks that each effective setting can be set both ways and has an effect.
func TestEveryRow(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"cni-conf-name": "10-a.conf", "fixed-default-network": "true", "mounted-cni-net-dir": "/n", "mounted-cni-bin-dir": "/b", "mounted-cni-cache-dir": "/c/",
		"cni-bin-source-dir": "/s", "cni-agent-run-dir": "/r/x/..", "service-account-dir": "/a", "kube-ca-file": "/ca",
		"kubernetes-service-protocol": "http", "kubernetes-service-host": "fd00::1", "kubernetes-service-port": "6443",
		"skip-tls-verify": "true", "kubeconfig-mode": "0640", "exclude-namespaces": " kube-system,,istio-system ",
		"pod-namespace": "istio-system", "agent-name": "agent", "installation-config-map": "installed", "pod-name": "agent-bcdfg", "native-nftables": "1", "dataplane": "auto",
		"plugin-kubeconfig": "/k", "health-address": "127.0.0.1:0", "uninstall-on-exit": "T", "uninstall-on-deletion": "false", "log_output_level": "debug",
		"log_as_json": "true", "chained-cni-plugin": "TRUE", "istio-owned-cni-config": "1",
		"install-mode": "owned", "istio-owned-cni-config-filename": "01-ours.conflist", "cni-conf-group-read": "true",
		"container-runtime-version": "containerd://2.1.4",
		"ambient-enabled":           "true", "ambient-mode": "node", "ambient-way": "vxlan", "ambient-enablement-selector": "- podSelector:\n    matchLabels: {mesh: 'yes'}", "ambient-dns-capture": "true",
		"ambient-existing": "", "drain-timeout": "20s", "ambient-closed": "true", "ztunnel-uds-address": "/z/z.sock", "ambient-proxy-namespace": "z",
		"ambient-proxy-name": "proxy", "node-ambient": "/na", "ambient-enable-aws-branch-eni-probe": "false", "ambient-disable-safe-upgrade": "true",
		"status-policy": "strict", "settings-dir": "", "fail-policy": "open", "fail-open-namespaces": "",
		"fail-closed-namespaces": "a,b", "plugin-timeout": "20s", "abandoned-after": "2h", "plugin-proc-root": "/host/proc", "node-name": "node-1",
		"cni-network-config": `{"type": "istio-cni"}`, "cni-network-config-file": "/no/such", "log-level": "warn", "cni-net-dir": "/n",
		"kubecfg-file-name": "x-kubeconfig", "log-uds-address": "/r/log.sock", "cni-enable-install": "false", "update-cni-binaries": "false",
		"skip-cni-binaries": "a,b c", "secondary-cni-bin-dir": "/second",
		"monitoring-port": "15015", "pprof-address": "127.0.0.1:6060", "node-watcher": "/w", "readiness-taint": "meshcni.io/not-ready",
		"repair-enabled": "false", "repair-repair-pods": "true", "mounted-proc-dir": "/host/proc", "mounted-netns-dirs": "/a,/b/", "repair-policy": "do=report", "repair-evict-pods": "true", "repair-delete-pods": "true", "repair-label-pods": "true",
		"repair-broken-pod-label-key": "k", "repair-broken-pod-label-value": "v", "repair-sidecar-annotation": "a",
		"repair-init-container-name": "c", "repair-init-container-exit-code": "95", "repair-init-container-termination-message": "m",
		"repair-label-selectors": "l", "repair-field-selectors": "status.phase!=Failed", "repair-act-at-start": "true", "repair-resync": "1m", "repair-writes": "1/2s",
		"repair-disruptions": "3/4s",
	}
	want := Settings{
		ConfName: "10-a.conf", FixedDefaultNetwork: true, NetDir: "/n", BinDir: "/b", CacheDir: "/c", SourceDir: "/s", RunDir: "/r", ServiceAccountDir: "/a",
		CAFile: "/ca", APIProtocol: "http", APIHost: "fd00::1", APIPort: "6443", SkipTLSVerify: true, KubeconfigMode: fs.FileMode(0o640),
		ExcludeNamespaces: []string{"kube-system", "istio-system"}, PodNamespace: "istio-system", AgentName: "agent", InstallationConfigMap: "installed", PodName: "agent-bcdfg",
		NativeNFTables: true, PluginDataplane: "auto", PluginKubeconfig: "/k", HealthAddress: "127.0.0.1:0", UninstallOnExit: true,
		LogLevel: slog.LevelDebug, PluginLogLevel: "debug", LogJSON: true,
		StatusPolicy: "strict", PluginTimeout: "20s", AbandonedAfter: "2h", PluginProcRoot: "/host/proc", NodeName: "node-1", ReadinessTaint: "meshcni.io/not-ready",
		Template: `{"type": "istio-cni"}`, TemplateFile: "/no/such", TemplateRead: readTemplate("/no/such"), TemplateLevel: "warn", NodeNetDir: "/n", KubeconfigFile: "x-kubeconfig",
		SkipBinaries: []string{"a", "b", "c"}, SecondBinDir: "/second",
		AskedMode: "owned", Owned: true, OwnFile: "01-ours.conflist", GroupRead: true, Runtime: "containerd://2.1.4",
		MetricsAddress: ":15015", PprofAddress: "127.0.0.1:6060", NodeWatcher: "/w",
		FailPolicy: pluginconf.FailPolicy{Default: "open", Open: []string{}, Closed: []string{"a", "b"}},
		Ambient: Ambient{
			Enabled: true, Mode: "node", Way: "vxlan", Selectors: []ambient.Selector{{Pod: ambient.LabelSelector{MatchLabels: map[string]string{"mesh": "yes"}}}}, DNS: true, Closed: true,
			DrainTimeout: "20s", ProxySocket: "/z/z.sock", ProxyNamespace: "z", ProxyName: "proxy", Program: "/na",
			DisableSafeUpgrade: true,
		},
		Repair: Repair{
			InPlace: true, ProcDir: "/host/proc", NetnsDirs: []string{"/a", "/b"},
			Rules: []repair.Rule{{Do: []repair.Mode{repair.ModeReport}}}, Evict: true, Delete: true, Label: true,
			BrokenPodLabel: repair.Label{Key: "k", Value: "v"}, SidecarAnnotation: "a",
			Validator: repair.Validator{Container: "c", ExitCodes: []int32{95}, Message: "m"}, LabelSelector: "l", FieldSelector: "status.phase!=Failed", ActAtStart: true,
			Resync: time.Minute, Writes: repair.Limit{Burst: 1, Every: 2 * time.Second}, Disruptions: repair.Limit{Burst: 3, Every: 4 * time.Second},
		},
	}
	env := map[string]string{}
	var args []string
	for _, row := range All() {
		value, ok := values[row.Name]
		if ok == row.Inert {
			t.Errorf("row %s: inert is %v, a value here: %v", row.Name, row.Inert, ok)
			continue
		}
		if ok {
			env[row.Env()] = value
			args = append(args, "--"+row.Name+"="+value)
		}
	}
	if diff := cmp.Diff(want, mustLoad(t, env)); diff != "" {
		t.Errorf("from the environment (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, mustLoad(t, nil, args...)); diff != "" {
		t.Errorf("from flags (-want +got):\n%s", diff)
	}
}

func TestExcludedNamespaces(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		value string
		want  []string
	}{
		"empty": {"", nil}, "spaces": {"   ", nil}, "only commas": {",,,", nil},
		"one": {"a", []string{"a"}}, "one with spaces": {" a ", []string{"a"}},
		"two": {"a,b", []string{"a", "b"}}, "two with spaces": {" a , b ", []string{"a", "b"}},
		"trailing comma": {"a,b,", []string{"a", "b"}}, "leading comma": {",a,b", []string{"a", "b"}},
		"embedded empty": {"a,,b", []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := mustLoad(t, nil, "--exclude-namespaces="+test.value).ExcludeNamespaces; !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestBadValues(t *testing.T) {
	t.Parallel()
	for name, values := range map[string]map[string]string{
		"cni-conf-name": {
			"../10-a.conflist": "bare file name", "a/b.conf": "bare file name", "/etc/passwd": "bare file name", "..": "bare file name",
			".conf": "bare file name", `a\b.conf`: "bare file name", "10-a.conflist.bak": "container runtimes don't read", "10-a": "don't read",
		},
		"mounted-cni-net-dir": {
			"etc/cni": "absolute path", "/": "directory of their own", "/proc/1": "directory of their own", "/dev": "directory of their own",
		},
		"fail-policy":                 {"ajar": "write one of closed, open, or leave it empty"},
		"log-level":                   {"loud": "write debug"},
		"kubecfg-file-name":           {"../kubeconfig": "bare file name", "10-x.conf": "ends in kubeconfig", "a/kubeconfig": "bare file name"},
		"log-uds-address":             {"/run/x/logs": "called log.sock", "log.sock": "absolute path", "/log.sock": "absolute path"},
		"skip-cni-binaries":           {"a,../b": "bare file name"},
		"plugin-timeout":              {"20": "with its unit", "0s": "above zero", "-1s": "above zero"},
		"kube-ca-file":                {"ca.crt": "absolute path"},
		"kubernetes-service-protocol": {"ftp": "write one of"},
		"kubernetes-service-port":     {"0": "port number", "70000": "port number", "https": "port number"},
		"skip-tls-verify":             {"yes": "write true or false"},
		"kubeconfig-mode": {
			"600": "0600", "0644": "holds a token", "0660": "holds a token", "0755": "holds a token", "rw": "octal", "0060": "holds a token", "-1": "octal",
		},
		"exclude-namespaces":     {"kube-system istio-system": "not a Kubernetes name", "Kube": "not a Kubernetes name"},
		"pod-namespace":          {"a/b": "not a Kubernetes name"},
		"pod-name":               {"-a": "not a Kubernetes name"},
		"status-policy":          {"sometimes": "write one of"},
		"dataplane":              {"ebpf": "write one of auto, nftables, iptables, or leave it empty"},
		"health-address":         {"8000": "host:port", ":http": "host:port", ":99999": "host:port"},
		"monitoring-port":        {"70000": "port number", "metrics": "port number", "": "port number"},
		"pprof-address":          {":6060": "loopback", "0.0.0.0:6060": "loopback", "localhost:6060": "loopback", "6060": "port"},
		"log_output_level":       {"loud": "not a level", "default:": "not a level", "": "not a level"},
		"chained-cni-plugin":     {"maybe": "write true or false"},
		"istio-owned-cni-config": {"maybe": "write true or false"},
		"install-mode":           {"both": "write one of"},
		"ambient-enabled":        {"perhaps": "write true or false"},
		"ambient-ipv6":           {"perhaps": "write true or false"},
		"ambient-existing":       {"reset": "write one of"},
		"ambient-mode":           {"in-node": "write one of"},
		"ambient-way":            {"geneve": "write one of"},
		"ztunnel-uds-address": {
			"": "path of a socket", "/": "path of a socket", "z.sock": "absolute path", "/z.sock": "directory of its own",
			"/z/../z.sock": "directory of its own", "/proc/z.sock": "directory of its own", "/sys/fs/z.sock": "directory of its own",
		},
		"drain-timeout": {"0s": "above zero"},
		"ambient-enablement-selector": {
			"{": "not YAML", "- podSelecter: {}": "unknown field", "{}": "the value has the type object: write a list",
			"- podSelector: {matchExpressions: [{key: a, operator: Has}]}": "write In, NotIn", "- {1: 2}": "not JSON in the form of YAML",
		},
	} {
		for value, want := range values {
			wantErrors(t, nil, []string{"--" + name + "=" + value}, "flag --"+name+"=", want)
		}
	}
}

func TestRelations(t *testing.T) {
	t.Parallel()
	wantErrors(t, map[string]string{"FAIL_OPEN_NAMESPACES": "a,b", "FAIL_CLOSED_NAMESPACES": "b"}, nil, `namespace "b" both in open and in closed`)
	wantErrors(t, nil, []string{"--cni-agent-run-dir=/x", "--mounted-cni-net-dir=/x"}, "mounted-cni-net-dir and cni-agent-run-dir are both /x")
	wantErrors(t, nil, []string{"--ambient-enabled"}, "ambient-enabled is set, but the node's name is unknown: set node-name")
	for args, want := range map[string]string{
		"--ambient-mode=node": "set ambient-proxy-namespace",
		"--ambient-mode=node --pod-namespace=mesh --ambient-existing=capture": "remove ambient-existing",
		"--ambient-way=vxlan": "set ambient-mode=node",
	} {
		wantErrors(t, nil, append(strings.Fields(args), "--ambient-enabled", "--node-name=n"), want)
		mustLoad(t, nil, strings.Fields(args)...) // ambient mode is off
	}
	wantErrors(t, nil, []string{"--mounted-cni-bin-dir=/opt/cni/bin"}, "in cni-bin-source-dir, which is only read from")
	wantErrors(t, nil, []string{"--cni-agent-run-dir=/var/run/secrets/kubernetes.io/serviceaccount/x"}, "in service-account-dir")
}

func TestMonitoringPort(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{"15014": ":15014", "0": "", "-1": ""} {
		if got := mustLoad(t, map[string]string{"MONITORING_PORT": value}).MetricsAddress; got != want {
			t.Errorf("%s: address %q, want %q", value, got, want)
		}
	}
}

func TestAllErrorsAtOnce(t *testing.T) {
	t.Parallel()
	wantErrors(t, map[string]string{"KUBECONFIG_MODE": "0777"}, []string{"--health-address=x"},
		`invalid settings: environment KUBECONFIG_MODE="0777"`, `invalid settings: flag --health-address="x"`)
}

func TestAgentNameFromPod(t *testing.T) {
	t.Parallel()
	for pod, want := range map[string]string{
		"istio-cni-node-x7k2p":  "istio-cni-node",
		"meshcni-default-bbbbb": "meshcni-default",
		"istio-ingress":         "", // "ingress" is not generated
		"istio-gate1":           "", // neither e nor 1 is in generated names
		"istio-bbbb":            "",
		"-bbbbb":                "error",
		"":                      "",
	} {
		s, err := load(t, map[string]string{"POD_NAME": pod})
		if (err != nil) != (want == "error") || (err == nil && s.AgentName != want) {
			t.Errorf("agent of pod %q = %q, %v; want %q", pod, s.AgentName, err, want)
		}
	}
}

func TestLogOutputLevel(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]struct {
		daemon slog.Level
		plugin string
	}{
		"warn":                          {slog.LevelWarn, "warn"},
		"default:error":                 {slog.LevelError, "error"},
		"all:none":                      {pluginconf.LevelNone, "none"},
		"cni-plugin:debug":              {slog.LevelInfo, "debug"},
		"cni-plugin:debug,default:warn": {slog.LevelWarn, "debug"},
		"default:info, cni-agent:debug": {slog.LevelDebug, "info"},
		"default:info,ztunnel:debug":    {slog.LevelInfo, "info"},
	} {
		s, err := load(t, map[string]string{"LOG_OUTPUT_LEVEL": value})
		if err != nil || s.LogLevel != want.daemon || s.PluginLogLevel != want.plugin {
			t.Errorf("%q = daemon %v, plugin %q, %v; want %v", value, s.LogLevel, s.PluginLogLevel, err, want)
		}
	}
}

// TestIgnored: settings of ambient mode without effect cause a warning only in that mode.
func TestIgnored(t *testing.T) {
	t.Parallel()
	env := map[string]string{"MONITORING_PORT": "15014", "AMBIENT_IPV6": "FALSE", "ENABLE_AMBIENT_DETECTION_RETRY": "true"}
	if diff := cmp.Diff([]string{"repair-run-as-daemon"}, mustLoad(t, env, "--repair-run-as-daemon=false").Ignored); diff != "" {
		t.Errorf("ignored (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"ambient-ipv6"}, mustLoad(t, env, "--ambient-enabled", "--node-name=a").Ignored); diff != "" {
		t.Errorf("ignored in ambient mode (-want +got):\n%s", diff)
	}
}

func TestOwner(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]Settings{
		"istio-system/istio-cni-node": {PodNamespace: "istio-system", AgentName: "istio-cni-node"},
		"istio-system":                {PodNamespace: "istio-system"},
		"install-cni":                 {},
	} {
		if got := s.Owner(); got != want {
			t.Errorf("Owner() = %q, want %q", got, want)
		}
	}
}

func load(t *testing.T, env map[string]string, args ...string) (Settings, error) {
	t.Helper()
	loaded, err := loadAll(t, env, args...)
	return loaded.Settings, err
}

// loadAll reads no settings directory by default.
func loadAll(t *testing.T, env map[string]string, args ...string) (Loaded, error) {
	t.Helper()
	var l Loaded
	var err error
	command := &cobra.Command{Run: func(command *cobra.Command, _ []string) {
		environ := []string{}
		for name, value := range env {
			environ = append(environ, name+"="+value)
		}
		l, err = Load(command, environ)
	}}
	AddFlags(command)
	command.SetArgs(append([]string{}, args...))
	if err := command.Execute(); err != nil {
		t.Fatal(err)
	}
	return l, err
}

func mustLoad(t *testing.T, env map[string]string, args ...string) Settings {
	t.Helper()
	s, err := load(t, env, args...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func wantErrors(t *testing.T, env map[string]string, args []string, parts ...string) {
	t.Helper()
	_, err := load(t, env, args...)
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("%v %v: error %v, want ErrInvalid", env, args, err)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v %v: error %q doesn't say %q", env, args, err, part)
		}
	}
}
