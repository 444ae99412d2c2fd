// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
)

// ControlPlane has the components outside all nodes.
type ControlPlane struct {
	Etcd, APIServer, Controllers, Scheduler *Process
}

const serviceAccountKey = "service-accounts"

// all returns the components in the order in which they start.
func (c ControlPlane) all() []*Process {
	return []*Process{c.Etcd, c.APIServer, c.Controllers, c.Scheduler}
}

// server returns the API server's address for clients that have IPv4.
func server() string { return "https://" + net.JoinHostPort(bridge4, apiPort) }

// server returns the API server's address for clients on the node.
func (n *Node) server() string {
	if n.ipv6Only() {
		return "https://" + net.JoinHostPort(bridge6, apiPort)
	}
	return server()
}

// IPv6Server returns where clients without IPv4 find the API server. The service "kubernetes" has
// an IPv4 address only.
func (c *Cluster) IPv6Server() (host, port string) { return bridge6, apiPort }

// newControlPlane makes keys and certificates, and the processes that use them.
func newControlPlane(directory, logs, program string, keys *authority) (ControlPlane, error) {
	for _, of := range []identity{
		{
			name: "apiserver", user: "kube-apiserver",
			hosts: []string{
				"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
			},
			addresses: []net.IP{net.ParseIP("127.0.0.1"), net.ParseIP(bridge4), net.ParseIP(bridge6), net.ParseIP(kubernetes4)},
		},
		{name: "kubelet-client", user: "apiserver-kubelet-client", groups: []string{"system:masters"}},
		{name: "admin", user: "admin", groups: []string{"system:masters"}},
		{name: "controllers", user: "system:kube-controller-manager"},
		{name: "scheduler", user: "system:kube-scheduler"},
		{name: "proxy", user: "system:kube-proxy"},
	} {
		if err := keys.issue(of); err != nil {
			return ControlPlane{}, err
		}
		if err := keys.kubeconfig(of.name, server()); err != nil {
			return ControlPlane{}, err
		}
	}
	if err := keys.serviceAccountKey(serviceAccountKey); err != nil {
		return ControlPlane{}, err
	}
	audit, err := auditArguments(directory, logs)
	if err != nil {
		return ControlPlane{}, err
	}
	part := func(name string, arguments []string) *Process {
		return newProcess(logs, name, program, append([]string{name}, arguments...)...)
	}
	return ControlPlane{
		Etcd:        part("etcd", etcdArguments(filepath.Join(directory, "etcd"))),
		APIServer:   part("kube-apiserver", append(apiServerArguments(keys), audit...)),
		Controllers: part("kube-controller-manager", controllersArguments(keys)),
		Scheduler: part("kube-scheduler", []string{
			"--kubeconfig=" + keys.path("scheduler.kubeconfig"), "--leader-elect=false", "--bind-address=127.0.0.1", "--profiling=false", "--v=2",
		}),
	}, nil
}

func etcdArguments(directory string) []string {
	const clients, peers = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	return []string{
		"--name=e2e", "--data-dir=" + directory, "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + clients, "--advertise-client-urls=" + clients,
		"--listen-peer-urls=" + peers, "--initial-advertise-peer-urls=" + peers, "--initial-cluster=e2e=" + peers,
	}
}

func apiServerArguments(keys *authority) []string {
	return []string{
		"--etcd-servers=http://127.0.0.1:2379", "--bind-address=::", "--secure-port=" + apiPort, "--advertise-address=" + bridge4,
		"--tls-cert-file=" + keys.path("apiserver.crt"), "--tls-private-key-file=" + keys.path("apiserver.key"),
		"--client-ca-file=" + keys.path("ca.crt"),
		// Nodes' names do not resolve.
		"--kubelet-preferred-address-types=InternalIP", "--kubelet-certificate-authority=" + keys.path("ca.crt"),
		"--kubelet-client-certificate=" + keys.path("kubelet-client.crt"), "--kubelet-client-key=" + keys.path("kubelet-client.key"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + keys.path(serviceAccountKey+".pub"),
		"--service-account-signing-key-file=" + keys.path(serviceAccountKey+".key"), "--service-cluster-ip-range=" + servicesV4 + "," + servicesV6,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--enable-priority-and-fairness=false", "--profiling=false", "--v=1",
	}
}

func controllersArguments(keys *authority) []string {
	return []string{
		"--kubeconfig=" + keys.path("controllers.kubeconfig"), "--leader-elect=false", "--bind-address=127.0.0.1",
		"--root-ca-file=" + keys.path("ca.crt"), "--service-account-private-key-file=" + keys.path(serviceAccountKey+".key"),
		"--use-service-account-credentials=true", "--allocate-node-cidrs=false", "--service-cluster-ip-range=" + servicesV4 + "," + servicesV6,
		"--cluster-signing-cert-file=" + keys.path("ca.crt"), "--cluster-signing-key-file=" + keys.path("ca.key"),
		"--node-monitor-grace-period=10s", "--profiling=false", "--v=2",
	}
}

// Inquiry is a request for one pod that the API server answered, whatever the answer.
type Inquiry struct {
	// UserAgent is the client's name for itself.
	UserAgent string `json:"userAgent"`
	// Pod is the requested pod.
	Pod struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"objectRef"`
}

// auditPolicy makes the API server log requests for single pods, with their clients, and nothing
// else. See https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, verbs: [get], resources: [{group: "", resources: [pods]}]}
  - {level: None}
`

// auditArguments writes the policy and returns the API server's arguments for it.
func auditArguments(directory, logs string) ([]string, error) {
	policy := filepath.Join(directory, "audit.yaml")
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog(logs)}, os.WriteFile(policy, []byte(auditPolicy), 0o600)
}

func auditLog(logs string) string { return filepath.Join(logs, "audit.log") }

// Inquiries returns all requests for single pods so far.
func (c *Cluster) Inquiries() ([]Inquiry, error) {
	text, err := os.ReadFile(auditLog(c.Logs()))
	if err != nil {
		return nil, err
	}
	end := bytes.LastIndexByte(text, '\n') + 1 // the last line may be incomplete
	decoder := json.NewDecoder(bytes.NewReader(text[:end]))
	var all []Inquiry
	for {
		var one Inquiry
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the API server's audit log: %w", err)
		}
		all = append(all, one)
	}
}
