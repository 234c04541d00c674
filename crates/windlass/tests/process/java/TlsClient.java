import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

/**
 * A TLS client that reads the files of a host projection again for every connection. Arguments: DIRECTORY PORT=NAME...
 *
 * It connects to the servers in turn and prints a line per connection, until its standard input ends.
 */
public class TlsClient {
    private static final char[] PASSWORD = "in memory".toCharArray();

    public static void main(String[] args) throws Exception {
        AtomicBoolean isOver = new AtomicBoolean();
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (IOException ignored) {
                // It has ended.
            }
            isOver.set(true);
        });
        input.setDaemon(true);
        input.start();
        while (true) {
            for (int number = 1; number < args.length; number++) {
                if (isOver.get()) {
                    return;
                }
                String[] target = args[number].split("=");
                try {
                    connect(Path.of(args[0]), Integer.parseInt(target[0]), target[1]);
                    System.out.println("ok");
                } catch (Exception error) {
                    System.out.println("failed: " + target[1] + ": " + error);
                }
                Thread.sleep(20);
            }
        }
    }

    private static void connect(Path directory, int port, String name) throws Exception {
        SSLContext context = load(directory);
        try (Socket plain = new Socket("127.0.0.1", port);
                SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket(plain, name, port, true)) {
            socket.setSoTimeout(60_000);
            SSLParameters parameters = socket.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            socket.setSSLParameters(parameters);
            OutputStream output = socket.getOutputStream();
            output.write("hi\n".getBytes(StandardCharsets.UTF_8));
            output.flush();
            String answer = new String(socket.getInputStream().readNBytes(7), StandardCharsets.UTF_8);
            if (!answer.equals("served\n")) {
                throw new IOException("the answer is " + answer);
            }
        }
    }

    private static SSLContext load(Path directory) throws Exception {
        while (true) {
            Path generation = directory.resolve(Files.readSymbolicLink(directory.resolve("..data")));
            try {
                String credentials = Files.readString(generation.resolve("web.pem"));
                String anchors = Files.readString(generation.resolve("ca.pem"));
                return context(credentials, anchors);
            } catch (NoSuchFileException replaced) {
                // There are newer files.
            }
        }
    }

    private static SSLContext context(String credentials, String anchors) throws Exception {
        KeyStore own = KeyStore.getInstance("PKCS12");
        own.load(null, null);
        own.setKeyEntry("own", key(credentials), PASSWORD, certificates(credentials));
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(own, PASSWORD);
        KeyStore roots = KeyStore.getInstance("PKCS12");
        roots.load(null, null);
        for (Certificate root : certificates(anchors)) {
            roots.setCertificateEntry("root" + roots.size(), root);
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(roots);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }

    private static PrivateKey key(String pem) throws Exception {
        String end = "-----END PRIVATE KEY-----";
        String begin = "-----BEGIN PRIVATE KEY-----";
        String text = pem.substring(pem.indexOf(begin) + begin.length(), pem.indexOf(end));
        byte[] encoded = Base64.getMimeDecoder().decode(text);
        return KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(encoded));
    }

    private static Certificate[] certificates(String pem) throws Exception {
        byte[] text = pem.substring(pem.indexOf("-----BEGIN CERTIFICATE")).getBytes(StandardCharsets.UTF_8);
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        return factory.generateCertificates(new ByteArrayInputStream(text)).toArray(new Certificate[0]);
    }
}
