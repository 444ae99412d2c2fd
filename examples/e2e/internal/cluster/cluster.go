// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options describe a cluster.
type Options struct {
	// Directory holds all files of the cluster; see [NewDirectory].
	Directory string
	// Kubernetes is the program of module kubernetes.
	Kubernetes string
	// Runtime is the directory of containerd, its shim, its client and the reference CNI plugins.
	Runtime string
	// Plugins are further CNI plugins for every node.
	Plugins []string
	// PauseImage is an image on every node whose program only waits: it holds a pod's namespaces.
	PauseImage string
	// Progress is called with each step reached.
	Progress func(message string)
}

// Cluster is a running cluster.
type Cluster struct {
	// ControlPlane has the components outside all nodes.
	ControlPlane ControlPlane
	// Client has all rights.
	Client *kubernetes.Clientset

	options   Options
	directory string
	keys      *authority
	config    *rest.Config
	nodes     []*Node
	numbers   int
}

// Start starts a cluster without nodes, and waits for its API server. The process must be in
// namespaces of its own (package sandbox), since the bridge and the ports are taken in them.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{options: o, directory: o.Directory}
	if err := os.MkdirAll(c.Logs(), 0o755); err != nil {
		return nil, err
	}
	var err error
	if c.keys, err = newAuthority(filepath.Join(c.directory, "pki")); err != nil {
		return nil, fmt.Errorf("make keys: %w", err)
	}
	if c.ControlPlane, err = newControlPlane(c.directory, c.Logs(), o.Kubernetes, c.keys); err != nil {
		return nil, fmt.Errorf("prepare the control plane: %w", err)
	}
	if err := errors.Join(makeBridge(), forward()); err != nil {
		return nil, err
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig()); err != nil {
		return nil, err
	}
	c.config.QPS = -1 // the tests are the only clients
	if c.Client, err = kubernetes.NewForConfig(c.config); err != nil {
		return nil, err
	}
	for _, process := range c.ControlPlane.all() {
		if err := process.Start(); err != nil {
			return nil, errors.Join(err, c.Stop())
		}
		if process == c.ControlPlane.APIServer {
			if err := c.AwaitAPIServer(ctx); err != nil {
				return nil, errors.Join(err, c.Stop())
			}
			o.Progress("the API server is ready")
		}
	}
	return c, nil
}

// Kubeconfig returns the path of a kubeconfig with all rights.
func (c *Cluster) Kubeconfig() string { return c.keys.path("admin.kubeconfig") }

// Config returns a client configuration with all rights.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Logs returns the directory with each component's output.
func (c *Cluster) Logs() string { return filepath.Join(c.directory, "logs") }

// Directory returns the directory with all files of the cluster.
func (c *Cluster) Directory() string { return c.directory }

// Nodes returns the cluster's nodes.
func (c *Cluster) Nodes() []*Node { return slices.Clone(c.nodes) }

// AwaitAPIServer waits until the API server is ready.
func (c *Cluster) AwaitAPIServer(ctx context.Context) error {
	return c.await(ctx, "the API server", time.Minute, func(ctx context.Context) (bool, error) {
		_, err := c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil, nil
	})
}

// ExchangeServiceAccountKey changes the key that signs service accounts' tokens. The restarted API
// server refuses all existing tokens.
func (c *Cluster) ExchangeServiceAccountKey(ctx context.Context) error {
	if err := c.keys.serviceAccountKey(serviceAccountKey); err != nil {
		return err
	}
	c.ControlPlane.APIServer.Stop()
	c.ControlPlane.Controllers.Stop() // they have tokens too
	if err := c.ControlPlane.APIServer.Start(); err != nil {
		return err
	}
	if err := c.AwaitAPIServer(ctx); err != nil {
		return err
	}
	return c.ControlPlane.Controllers.Start()
}

// AddNode starts another node. It does not wait until the node is ready.
func (c *Cluster) AddNode(o NodeOptions) (*Node, error) {
	c.numbers++ // numbers of removed nodes are not reused
	n := &Node{Name: fmt.Sprintf("node%d", c.numbers), number: c.numbers, cluster: c, options: o}
	if err := n.prepare(); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", n.Name, err)
	}
	c.nodes = append(c.nodes, n)
	return n, n.Start()
}

// RemoveNode ends a node, and removes it and its pods from the cluster.
func (c *Cluster) RemoveNode(ctx context.Context, n *Node) error {
	n.Kill()
	c.nodes = slices.DeleteFunc(c.nodes, func(other *Node) bool { return other == n })
	if err := c.Client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	pods, err := c.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		err := c.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		if err != nil {
			return err
		}
	}
	return nil
}

// AwaitReady waits until a node is ready, or, with false, until it is registered and not ready.
func (c *Cluster) AwaitReady(ctx context.Context, n *Node, ready bool) error {
	return c.await(ctx, fmt.Sprintf("%s to be ready=%t", n.Name, ready), 2*time.Minute, func(ctx context.Context) (bool, error) {
		node, err := c.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // the object or the API server is not there yet
		}
		index := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
		return index >= 0 && (node.Status.Conditions[index].Status == corev1.ConditionTrue) == ready, nil
	})
}

// await waits for a condition, and fails early if a process of the cluster has ended.
func (c *Cluster) await(ctx context.Context, what string, most time.Duration, condition wait.ConditionWithContextFunc) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, most, true, func(ctx context.Context) (bool, error) {
		if err := c.Running(); err != nil {
			return false, err
		}
		return condition(ctx)
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w; see %s", what, err, c.Logs())
	}
	return nil
}

// Running returns an error that names a process of the cluster that has ended by itself.
func (c *Cluster) Running() error {
	for _, process := range c.ControlPlane.all() {
		if err := process.running(); err != nil {
			return err
		}
	}
	for _, node := range c.nodes {
		if err := node.running(); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends all processes of the cluster, and removes their control groups from the machine. The
// directory stays.
func (c *Cluster) Stop() error {
	for _, node := range c.nodes {
		node.Kill()
	}
	for _, process := range slices.Backward(c.ControlPlane.all()) {
		process.Stop()
	}
	return removeControlGroups(filepath.Join(c.directory, "*"))
}
