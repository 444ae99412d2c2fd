// SPDX-License-Identifier: Apache-2.0

package kubeconfig_test

import (
	"errors"
	"fmt"

	"github.com/meshcni/meshcni/kubeconfig"
)

// In a pod, host and port come from KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, CA and
// token from the service account's directory.
func ExampleBuild() {
	server, err := kubeconfig.ServerURL("", "fd00:10:96::1", "443")
	if err != nil {
		fmt.Println(err)
		return
	}
	file, err := kubeconfig.Build(kubeconfig.Input{
		Server:   server,
		Insecure: true, // better: CA: ca
		Token:    kubeconfig.NewToken("eyJhbGciOi"),
		Name:     "istio-cni",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(file) // file.YAML() has the token
	// Output:
	// apiVersion: v1
	// kind: Config
	// clusters:
	// - name: local
	//   cluster:
	//     server: "https://[fd00:10:96::1]:443"
	//     insecure-skip-tls-verify: true
	// users:
	// - name: istio-cni
	//   user:
	//     token: REDACTED
	// contexts:
	// - name: istio-cni-context
	//   context:
	//     cluster: local
	//     user: istio-cni
	// current-context: istio-cni-context
}

func ExampleParse() {
	_, err := kubeconfig.Parse([]byte(`
current-context: plugin
contexts:
- name: plugin
  context: {cluster: local, user: plugin}
`))
	fmt.Println(err)
	config, err := kubeconfig.Parse([]byte(`
current-context: plugin
contexts:
- name: plugin
  context:
    cluster: local
    user: istio-cni
clusters:
- name: local
  cluster:
    server: https://10.96.0.1:443
    certificate-authority: /etc/kubernetes/pki/ca.crt
users:
- name: istio-cni
  user:
    token: eyJhbGciOi
`))
	fmt.Println(config.Server, config.CA.File, config.Token, err)
	// Output:
	// line 5: it has a list or mapping in braces or brackets, which is only supported when empty
	// https://10.96.0.1:443 /etc/kubernetes/pki/ca.crt REDACTED <nil>
}

func ExampleServerURL() {
	for _, host := range []string{"10.96.0.1", "::1", "[::1]", "kubernetes.default.svc"} {
		server, err := kubeconfig.ServerURL("https", host, "443")
		fmt.Println(server, err)
	}
	_, err := kubeconfig.ServerURL("https", "[10.96.0.1]", "443")
	fmt.Println(errors.Is(err, kubeconfig.ErrServer))
	// Output:
	// https://10.96.0.1:443 <nil>
	// https://[::1]:443 <nil>
	// https://[::1]:443 <nil>
	// https://kubernetes.default.svc:443 <nil>
	// true
}

func ExampleToken() {
	token := kubeconfig.NewToken("secret")
	fmt.Printf("%v %q %x\n", token, token, token)
	fmt.Println(token.Reveal())
	// Output:
	// REDACTED REDACTED REDACTED
	// secret
}
